"""The requests that SDKs send, parsed at a third of the parser's price. Pure.

Plain is what comes whole and alone: ``POST / HTTP/1.1`` with the length of its body, in
printable ASCII, one space behind each colon, no name twice, and none that changes how the message
is read. What is so the parser (``session``) reads in the same way; all else is left to it.
"""

import re
from typing import Final

from adapters.sqs.wire import Request

PLAIN_BYTES_MAX: Final = 64 * 1024

_FIRST_LINE: Final = b"POST / HTTP/1.1\r\n"
_END: Final = b"\r\n\r\n"
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_NAME: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+\-.^_`|~]+")
_LENGTH: Final = b"content-length"
_LENGTH_CHARS_MAX: Final = 9
# With these a body may have no length, or wait, or be another protocol's.
_NOT_PLAIN: Final = frozenset(
    {b"transfer-encoding", b"expect", b"upgrade", b"connection", b"proxy-connection", b"te"}
)
_KEEP_ALIVE: Final = (b"connection", b"keep-alive")  # which changes nothing in HTTP/1.1
# As SDKs write them; of any other the characters are looked at.
_KNOWN: Final = {
    spelt: name
    for name in (
        b"accept",
        b"accept-encoding",
        b"amz-sdk-invocation-id",
        b"amz-sdk-request",
        b"authorization",
        _LENGTH,
        b"content-type",
        b"host",
        b"user-agent",
        b"x-amz-content-sha256",
        b"x-amz-date",
        b"x-amz-security-token",
        b"x-amz-target",
        b"x-amzn-query-mode",
        b"x-amz-user-agent",
    )
    for spelt in (name, name.title())
}


def parse_plain(octets: bytes, *, header_bytes_max: int) -> Request | None:
    """Return the one request that octets are, or None when the parser is to say what they are."""
    end = octets.find(_END) if octets.startswith(_FIRST_LINE) else -1
    if not 0 < end <= header_bytes_max:
        return None
    head = octets[len(_FIRST_LINE) : end]
    lines = head.split(b"\r\n")
    # What is not printable is the ends of lines, which were found; no value has spaces around it.
    if (
        len(head.translate(None, _PRINTABLE)) != 2 * (len(lines) - 1)
        or b":  " in head
        or b" \r" in head
        or head.endswith(b" ")
    ):
        return None
    headers: dict[bytes, bytes] = {}
    known = _KNOWN.get
    for line in lines:
        spelt, colon, value = line.partition(b": ")
        name = known(spelt) or (spelt.lower() if _NAME.fullmatch(spelt) else None)
        if name is None or not colon:
            return None
        if name in _NOT_PLAIN and (name, value.lower()) != _KEEP_ALIVE:
            return None
        headers[name] = value
    length = headers.get(_LENGTH, b"")
    if (
        len(headers) != len(lines)
        or not length.isdigit()
        or len(length) > _LENGTH_CHARS_MAX
        or int(length) != len(octets) - end - len(_END)
    ):
        return None
    return Request(b"POST", b"/", b"", headers, octets[end + len(_END) :], is_last=False)
