"""Frames of STOMP 1.0, 1.1 and 1.2: bytes to frames, and frames to bytes. Pure: no I/O.

A frame is a command, headers, an empty line, a body and NUL. With ``content-length`` the body may
have any bytes, without it it ends at the first NUL. Line ends between frames are heart-beats.
"""

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from gateway.errors import MessageTooLarge, PeerError
from gateway.model import Buffer

Headers = Iterable[tuple[str, str]]

BODIES: Final = frozenset({"SEND"})
"""Commands of clients whose frames may have a body."""
COMMANDS: Final = BODIES | {
    "CONNECT",
    "STOMP",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "ACK",
    "NACK",
    "BEGIN",
    "COMMIT",
    "ABORT",
    "DISCONNECT",
}
HEART_BEAT: Final = b"\n"
_UNESCAPED: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})
"""Commands whose headers are as in 1.0, since the version is not agreed on yet."""
_LINE_ENDS: Final = re.compile(rb"[\r\n]*")
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_HEAD_END_BYTES: Final = 3
_COMPACT_BYTES: Final = 65_536
_LENGTH_DIGITS_MAX: Final = 18


class Version(IntEnum):
    """Version of the protocol."""

    V10 = 10
    V11 = 11
    V12 = 12

    def __str__(self) -> str:
        """Return the version as frames have it."""
        return f"{self // 10}.{self % 10}"


class BrokenFrame(PeerError):
    """Bytes that are no frame: what follows cannot be trusted."""


class FrameTooLarge(PeerError, MessageTooLarge):
    """Frame above a limit, complete or not."""


class Frame(NamedTuple):
    """One frame. Of a header that comes twice, the first counts."""

    command: str
    headers: dict[str, str]
    body: bytes = b""


class FrameReader:
    r"""Cuts what is received into frames, of which one is decoded at a time.

    ``version`` is set once it is agreed on: what follows CONNECT in the same read is decoded by it.

    >>> reader = FrameReader(header_bytes_max=100, headers_max=10, body_bytes_max=100)
    >>> reader.feed(b"SEND\ndestination:/queue/a\n\nhello\0\n")
    >>> reader.take()
    Frame(command='SEND', headers={'destination': '/queue/a'}, body=b'hello')
    """

    def __init__(self, *, header_bytes_max: int, headers_max: int, body_bytes_max: int) -> None:
        self.version = Version.V10
        self._header_bytes_max = header_bytes_max
        self._headers_max = headers_max
        self._body_bytes_max = body_bytes_max
        self._data = bytearray()
        self._at = 0  # the frame begins here
        self._seen = 0  # up to here its end was looked for
        self._head: tuple[str, dict[str, str], int | None] | None = None
        self._body_at = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes that were received and are in no frame yet."""
        return len(self._data) - self._at

    def feed(self, data: Buffer) -> None:
        """Add what was received."""
        self._data += data

    def take(self) -> Frame | None:
        """Return the next frame, None until it is complete.

        Errors: ``BrokenFrame``, ``FrameTooLarge``.
        """
        if self._head is None and not self._read_head():
            self._compact()
            return None
        assert self._head is not None
        command, headers, length = self._head
        end = self._find_end(length)
        if end < 0:
            return None
        body = bytes(memoryview(self._data)[self._body_at : end])
        if body and command not in BODIES:
            msg = f"a {command} frame must not have a body"
            raise BrokenFrame(msg)
        self._head = None
        self._at = self._seen = end + 1
        self._compact()
        return Frame(command, headers, body)

    def _read_head(self) -> bool:
        data = self._data
        found = _LINE_ENDS.match(data, self._at)
        assert found is not None
        self._at = found.end()
        end = _HEAD_END.search(data, max(self._at, self._seen - _HEAD_END_BYTES))
        size_bytes = (len(data) if end is None else end.start()) - self._at
        room_bytes = self._header_bytes_max + (_HEAD_END_BYTES if end is None else 0)
        if size_bytes > room_bytes:
            msg = f"the headers are longer than {self._header_bytes_max} bytes"
            raise FrameTooLarge(msg)
        if end is None:
            self._seen = len(data)
            return False
        self._head = self._decode_head(bytes(data[self._at : end.start()]))
        self._body_at = self._seen = end.end()
        return True

    def _decode_head(self, head: bytes) -> tuple[str, dict[str, str], int | None]:
        try:
            text = head.decode()
        except UnicodeDecodeError as error:
            msg = "the headers are not UTF-8"
            raise BrokenFrame(msg) from error
        command, *lines = (line.removesuffix("\r") for line in text.split("\n"))
        if command not in COMMANDS:
            msg = f"unknown command {command[:40]!r}"
            raise BrokenFrame(msg)
        if len(lines) > self._headers_max or "\0" in text:
            msg = f"more than {self._headers_max} headers, or a NUL among them"
            raise BrokenFrame(msg)
        headers: dict[str, str] = {}
        is_escaped = self.version > Version.V10 and command not in _UNESCAPED
        for line in lines:
            name, colon, value = line.partition(":")
            if not name or not colon:
                msg = f"no header: {line[:40]!r}"
                raise BrokenFrame(msg)
            if is_escaped and "\\" in line:
                name, value = _unescape(name, self.version), _unescape(value, self.version)
            elif self.version is Version.V10:
                value = value.strip(" ")
            headers.setdefault(name, value)
        return command, headers, self._length_of(headers)

    def _length_of(self, headers: dict[str, str]) -> int | None:
        text = headers.get("content-length")
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= _LENGTH_DIGITS_MAX):
            msg = f"content-length {text[:40]!r} is no number"
            raise BrokenFrame(msg)
        if int(text) > self._body_bytes_max:
            raise self._too_large()
        return int(text)

    def _find_end(self, length: int | None) -> int:
        """Return where the body's NUL is, or -1."""
        data = self._data
        if length is not None:
            end = self._body_at + length
            if end >= len(data):
                return -1
            if data[end]:
                msg = f"no NUL after the {length} bytes of content-length"
                raise BrokenFrame(msg)
            return end
        end = data.find(0, self._seen)
        self._seen = len(data)
        if (len(data) if end < 0 else end) - self._body_at > self._body_bytes_max:
            raise self._too_large()
        return end

    def _too_large(self) -> FrameTooLarge:
        return FrameTooLarge(f"the body is longer than {self._body_bytes_max} bytes")

    def _compact(self) -> None:
        """Forget the frames that were returned."""
        if self._at == len(self._data) or self._at >= _COMPACT_BYTES:
            del self._data[: self._at]
            self._seen -= self._at
            self._body_at -= self._at
            self._at = 0


_ESCAPED: Final = {
    Version.V10: str.maketrans({":": "_", "\n": " ", "\0": "\ufffd"}),
    Version.V11: str.maketrans({"\\": "\\\\", ":": "\\c", "\n": "\\n", "\0": "\ufffd"}),
    Version.V12: str.maketrans(
        {"\\": "\\\\", ":": "\\c", "\n": "\\n", "\r": "\\r", "\0": "\ufffd"}
    ),
}
_OLD_VALUE: Final = str.maketrans({"\n": " ", "\0": "\ufffd"})
_UNESCAPES: Final = {"\\\\": "\\", "\\c": ":", "\\n": "\n", "\\r": "\r"}
_ESCAPE: Final = re.compile(r"\\.?", re.DOTALL)


def _unescape(text: str, version: Version) -> str:
    r"""Return a header's name or value. Error: ``BrokenFrame`` for an unknown escape.

    >>> _unescape(r"a\cb", Version.V11)
    'a:b'
    """

    def one(match: re.Match[str]) -> str:
        found = _UNESCAPES.get(match[0])
        if found is None or (found == "\r" and version < Version.V12):
            msg = f"unknown escape {match[0]!r} in a header"
            raise BrokenFrame(msg)
        return found

    return _ESCAPE.sub(one, text)


def encode_headers(headers: Headers, version: Version) -> bytes:
    r"""Return header lines. NUL, and in 1.0 line ends too, cannot be represented.

    >>> encode_headers([("a:b", "c")], Version.V12)
    b'a\\cb:c\n'
    """
    table = _ESCAPED[version]
    values = _OLD_VALUE if version is Version.V10 else table
    lines = [f"{name.translate(table)}:{value.translate(values)}\n" for name, value in headers]
    return "".join(lines).encode()


def encode_frame(command: str, headers: Headers, version: Version, body: bytes = b"") -> bytes:
    r"""Return a frame. A body has ``content-length`` before all other headers.

    >>> encode_frame("RECEIPT", [("receipt-id", "7")], Version.V12)
    b'RECEIPT\nreceipt-id:7\n\n\x00'
    """
    if command in _UNESCAPED:
        version = Version.V10
    head = encode_headers(headers, version)
    length = b"content-length:%d\n" % len(body) if body else b""
    return b"%s\n%s%s\n%s\0" % (command.encode(), length, head, body)
