"""PROXY protocol, versions 1 and 2: the client's address behind a load balancer.

Source: haproxy's proxy-protocol.txt, sections 2.1 and 2.2. The parser says how many bytes it wants
next and is never given more, so that what follows (a TLS hello, say) stays unread.
"""

import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from gateway.errors import PeerError

_V2_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_HEAD_BYTES: Final = 16
_V1_BYTES_MAX: Final = 107
_V2_BYTES_MAX: Final = 4096  # a certificate may be among what follows the addresses
_V2_LOCAL, _V2_PROXY = 0, 1
_V2_IPV4, _V2_IPV6 = 1, 2
_V2_ADDRESSES_BYTES: Final = {_V2_IPV4: 12, _V2_IPV6: 36}
_V1_FIELDS: Final = 6


class ProxyHeader:
    """Parser of one header: pass ``wants`` bytes until that is 0, then read ``host``."""

    def __init__(self) -> None:
        self._data = b""
        self.wants = len(_V2_SIGNATURE)
        self.host: str | None = None

    def receive(self, data: bytes) -> None:
        """Take at most ``wants`` bytes. Error: ``PeerError`` for bytes that are no header."""
        self._data += data
        self.wants -= len(data)
        if self.wants:
            return
        if self._data.startswith(_V2_SIGNATURE):
            self._receive_v2()
        elif self._data.startswith(b"PROXY "):
            self._receive_v1()
        else:
            msg = "the connection did not begin with a PROXY protocol header"
            raise PeerError(msg)

    def _receive_v1(self) -> None:
        if not self._data.endswith(b"\r\n"):
            if len(self._data) >= _V1_BYTES_MAX:
                msg = "a PROXY protocol line is longer than 107 bytes"
                raise PeerError(msg)
            self.wants = 1
            return
        fields = self._data.decode("latin-1").split()
        if fields[1:2] == ["UNKNOWN"]:
            return
        if len(fields) != _V1_FIELDS or fields[1] not in {"TCP4", "TCP6"}:
            msg = "a PROXY protocol line is not complete"
            raise PeerError(msg)
        try:
            self.host = _shown(ip_address(fields[2]))
        except ValueError:
            msg = "a PROXY protocol line has an address that is none"
            raise PeerError(msg) from None

    def _receive_v2(self) -> None:
        if len(self._data) < _V2_HEAD_BYTES:
            self.wants = _V2_HEAD_BYTES - len(self._data)
            return
        version_command, family, length = struct.unpack_from(">BBH", self._data, 12)
        if version_command >> 4 != 2 or length > _V2_BYTES_MAX:  # noqa: PLR2004 - version 2
            msg = "a PROXY protocol v2 header is not valid"
            raise PeerError(msg)
        body = self._data[_V2_HEAD_BYTES:]
        if len(body) < length:
            self.wants = length - len(body)
            return
        command = version_command & 0x0F
        if command == _V2_LOCAL:
            return
        addresses_bytes = _V2_ADDRESSES_BYTES.get(family >> 4, 0)
        if command != _V2_PROXY or length < addresses_bytes:
            msg = "a PROXY protocol v2 header has an unknown command, or addresses cut short"
            raise PeerError(msg)
        if family >> 4 == _V2_IPV4:
            self.host = str(IPv4Address(body[:4]))
        elif family >> 4 == _V2_IPV6:
            self.host = _shown(IPv6Address(body[:16]))


def _shown(address: IPv4Address | IPv6Address) -> str:
    """Return an address as rules name it; IPv4 within IPv6 becomes IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
