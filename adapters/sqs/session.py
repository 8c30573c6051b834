"""HTTP/1.1 of one connection: bytes in any pieces to complete requests. Pure.

httptools (llhttp) parses; this module adds limits. A request that the parser refuses (a bad request
line, a space before a colon, two kinds of length) ends the connection with 400.
"""

from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from adapters.sqs.wire import Request

HEADERS_MAX: Final = 200
READ_BYTES: Final = 256 * 1024  # of one read
_UPGRADE: Final = frozenset({b"connection", b"upgrade"})
_CONTINUE: Final = b"100-continue"


class BadRequest(Exception):
    """The peer violated HTTP or a limit: answer with this status, then close."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class HttpSession:
    """Parser of a stream of requests. After ``error`` is set, it ignores further bytes."""

    def __init__(self, *, header_bytes_max: int, request_bytes_max: int) -> None:
        self.error: BadRequest | None = None
        self.wants_continue = False
        """The peer waits for ``100 Continue`` before it sends the body of its request."""
        self._header_bytes_max = header_bytes_max
        self._request_bytes_max = request_bytes_max
        self._raw_headers: dict[bytes, bytes] = {}
        # Called with (name, value), for trailers too. A method in Python took 7 us of the 30 us of
        # a request.
        self.on_header = self._raw_headers.__setitem__
        self._parser = HttpRequestParser(self)
        self._requests: list[Request] = []
        self._fed_bytes = 0  # of the last read
        self._raw_bytes = 0  # of the current request; limits the parser's own buffers
        self.is_midway = False
        """Whether a request has begun and is incomplete."""
        self._begin()

    def receive_data(self, data: bytes | memoryview) -> list[Request]:
        """Take bytes and return the requests that they complete."""
        if self.error is not None:
            return []
        self._fed_bytes = len(data)
        self._raw_bytes += self._fed_bytes
        try:
            self._feed(data)
        except (HttpParserError, HttpParserUpgrade) as error:  # HttpParserUpgrade: CONNECT
            cause = error.__context__
            self.error = cause if isinstance(cause, BadRequest) else BadRequest(400, str(error))
        requests, self._requests = self._requests, []
        if requests and requests[-1].is_last:
            self.error = None  # bytes after the last request are ignored
        elif self.is_midway and self._raw_bytes > self._raw_bytes_max and self.error is None:
            self.error = BadRequest(431, "the headers are too long")
        return requests

    def close(self) -> None:
        """Drop the parser, which refers to this object; no more data may be given."""
        del self._parser

    @property
    def kept_bytes(self) -> int:
        """Bytes received of the incomplete request."""
        return self._raw_bytes if self.is_midway else 0

    @property
    def incomplete_request(self) -> Request:
        """The incomplete request without its body; headers are there once all have come."""
        path, _, query = self._url.partition(b"?")
        return Request(self._parser.get_method(), path, query, self._headers, b"", is_last=True)

    def _feed(self, data: bytes | memoryview) -> None:
        """Parse; a request with the header ``Upgrade`` is parsed as HTTP/1.1.

        httptools takes an upgrade as accepted, and the body as data of the other protocol. So the
        head is parsed again without the header.
        """
        while True:
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                head = self._head_without_upgrade()
                self._parser = HttpRequestParser(self)
                self._begin()
                self._parser.feed_data(head)
                data = memoryview(data)[upgrade.args[0] :]
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        lines = [self._parser.get_method() + b" " + self._url + b" HTTP/1.1"]
        lines += [
            name + b": " + value
            for name, value in self._raw_headers.items()
            if name.lower() not in _UPGRADE
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    @property
    def _raw_bytes_max(self) -> int:
        """Limit of a request's bytes on the wire: chunks may double the size of a body.

        The read in which it began may have held other requests before it.
        """
        bytes_max = self._header_bytes_max + READ_BYTES
        return bytes_max + 2 * self._request_bytes_max if self._in_body else bytes_max

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._raw_headers.clear()
        self._chunks: list[bytes] = []
        self._body_bytes = 0
        self._in_body = False

    # --- httptools calls these

    def on_message_begin(self) -> None:
        """Note that a request has begun."""
        self.is_midway = True

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request target."""
        self._url += url

    def on_headers_complete(self) -> None:
        """Refuse a request that is too large before its body comes."""
        self._in_body = True
        self._headers = headers = {
            name.lower(): value for name, value in self._raw_headers.items()
        }
        if len(self._raw_headers) > HEADERS_MAX or (
            self._raw_bytes > self._header_bytes_max  # otherwise they cannot be too long
            and self._head_bytes() > self._header_bytes_max
        ):
            raise BadRequest(431, "the headers are too long")
        length = headers.get(b"content-length")
        # llhttp has checked that it is a number.
        if length is not None and int(length) > self._request_bytes_max:
            raise BadRequest(413, "the request is too large")
        if b"expect" in headers and headers[b"expect"].lower() == _CONTINUE:
            self.wants_continue = True

    def _head_bytes(self) -> int:
        pairs = self._raw_headers.items()
        return len(self._url) + sum(len(name) + len(value) for name, value in pairs)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > self._request_bytes_max:
            raise BadRequest(413, "the request is too large")
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        """Add the complete request to the result."""
        if self._parser.should_upgrade():
            return  # see ``_feed``
        chunks = self._chunks
        path, _, query = self._url.partition(b"?")
        self._requests.append(
            Request(
                self._parser.get_method(),
                path,
                query,
                self._headers,
                chunks[0] if len(chunks) == 1 else b"".join(chunks),
                is_last=not self._parser.should_keep_alive(),
            )
        )
        self.wants_continue = False
        self.is_midway = False
        self._raw_bytes = self._fed_bytes  # the next request may have come in the same read
        self._begin()
