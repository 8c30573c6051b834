"""Complete HTTP/1.1 requests (RFC 9112)."""

from typing import Final

FORM: Final = b"application/x-www-form-urlencoded"


class Request:
    """One request; a plain object with slots, because thousands come per second.

    ``path`` and ``query`` are the two parts of the request target, not decoded. Names of
    ``headers`` are in lower case; the last of several headers of one name counts.
    """

    __slots__ = ("body", "headers", "is_last", "method", "path", "query")

    def __init__(
        self,
        method: bytes,
        path: bytes,
        query: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        *,
        is_last: bool,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.is_last = is_last  # the connection is closed after its answer
