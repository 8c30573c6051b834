"""HTTP/1.1 of one connection: bytes, cut anywhere, to whole requests. Pure.

httptools (llhttp) parses; here are the bounds, and what may be kept waiting. What it refuses
(a bad first line, a space before a colon, both lengths at once) ends the connection with 400.
"""

from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from adapters.sqs.wire import Request

HEADERS_MAX: Final = 200
LARGE_BYTES: Final = 64 * 1024
READ_BYTES: Final = 256 * 1024  # that come in one go
_UPGRADE: Final = frozenset({b"connection", b"upgrade"})
_CONTINUE: Final = b"100-continue"


class BadRequest(Exception):
    """The peer broke HTTP, or a bound: answer this status, then close."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class HttpSession:
    """Cuts a stream into requests. After ``error`` was set nothing more is read."""

    def __init__(self, *, header_bytes_max: int, request_bytes_max: int) -> None:
        self.error: BadRequest | None = None
        self.wants_continue = False
        """The peer waits for ``100 Continue`` before it sends the body of its request."""
        self.large_bytes = 0
        """Bytes of the body under way when it is large; there is to be room for all of it."""
        self._header_bytes_max = header_bytes_max
        self._request_bytes_max = request_bytes_max
        self._raw_headers: dict[bytes, bytes] = {}
        # Called with (name, value), of trailers too. As a method of ours it cost 7 us of the 30
        # that a request took.
        self.on_header = self._raw_headers.__setitem__
        self._parser = HttpRequestParser(self)
        self._requests: list[Request] = []
        self._fed_bytes = 0  # of the last read
        self._raw_bytes = 0  # of the request under way; bounds what the parser holds itself
        self.is_midway = False
        """Whether a request has begun and is not complete."""
        self._begin()

    def receive_data(self, data: bytes | memoryview) -> list[Request]:
        """Take bytes and return the requests that are complete with them."""
        if self.error is not None:
            return []
        self._fed_bytes = len(data)
        self._raw_bytes += self._fed_bytes
        try:
            self._feed(data)
        except (HttpParserError, HttpParserUpgrade) as error:  # the second is for CONNECT
            cause = error.__context__
            self.error = cause if isinstance(cause, BadRequest) else BadRequest(400, str(error))
        requests, self._requests = self._requests, []
        if requests and requests[-1].is_last:
            self.error = None  # what comes after it is not for us
        elif self.is_midway and self._raw_bytes > self._raw_bytes_max and self.error is None:
            self.error = BadRequest(431, "the headers are too long")
        return requests

    def close(self) -> None:
        """Let go of the parser, which holds this; nothing is read any more."""
        del self._parser

    @property
    def kept_bytes(self) -> int:
        """Bytes of the request that is not complete, as it travels."""
        return self._raw_bytes if self.is_midway else 0

    @property
    def under_way(self) -> Request:
        """What is known of the request that is not complete: its headers, once all have come."""
        path, _, query = self._url.partition(b"?")
        return Request(self._parser.get_method(), path, query, self._headers, b"", is_last=True)

    def _feed(self, data: bytes | memoryview) -> None:
        """Parse; clients that offer another protocol are answered in this one.

        httptools takes an offer as accepted, and a body as the other protocol's. So such a
        request is begun anew without it.
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
        """Bytes that a request may have as it travels: chunks may double a body.

        The read in which it began may have had others before it.
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
        """A first byte of a request has come."""
        self.is_midway = True

    def on_url(self, url: bytes) -> None:
        """Take a piece of the first line's target."""
        self._url += url

    def on_headers_complete(self) -> None:
        """Refuse what is too large before its body comes."""
        self._in_body = True
        self._headers = headers = {
            name.lower(): value for name, value in self._raw_headers.items()
        }
        if len(self._raw_headers) > HEADERS_MAX or (
            self._raw_bytes > self._header_bytes_max  # else there cannot be as many
            and self._head_bytes() > self._header_bytes_max
        ):
            raise BadRequest(431, "the headers are too long")
        length = headers.get(b"content-length")
        if length is not None:
            size_bytes = int(length)  # llhttp has seen that it is a number
            if size_bytes > self._request_bytes_max:
                raise BadRequest(413, "the request is too large")
            if size_bytes > LARGE_BYTES:
                self.large_bytes = size_bytes
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
        if self._body_bytes > LARGE_BYTES and not self.large_bytes:
            self.large_bytes = self._request_bytes_max  # a chunked one may get as large
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        """Hand out the request."""
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
        self.large_bytes = 0
        self.is_midway = False
        self._raw_bytes = self._fed_bytes  # of which the next may have all but this
        self._begin()
