"""What travels: HTTP/1.1 requests (RFC 9112), whole."""

from typing import Final

FORM: Final = b"application/x-www-form-urlencoded"
JSON: Final = b"application/x-amz-json-1.0"


class Request:
    """One request. They come by the thousand a second, so it is a plain object with slots.

    ``target`` is what stands in the first line, ``path`` and ``query`` its two parts, all as
    they came. Names of ``headers`` are in lower case; of a name that came twice the last counts.
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
        self.is_last = is_last  # the connection ends with its answer
