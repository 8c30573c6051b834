"""Users of client certificates, by common name or alternative name.

TLS has verified the certificate against ``tls_client_ca`` by then. What a listener's rule does
not map to exactly one user's name maps to nobody.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.auth.users import check_name
from gateway.config.base import ListenerConfig
from gateway.errors import InvalidRequest

_ALTERNATIVES: Final = {"dns": "DNS", "email": "email", "uri": "URI"}


def certificate_user(transport: asyncio.Transport | None, config: ListenerConfig) -> str | None:
    """Return the user that the peer's certificate maps to, or None."""
    if transport is None or config.tls_client_ca is None:
        return None
    certificate: Mapping[str, Any] | None = transport.get_extra_info("peercert")
    return mapped_user(certificate or {}, config.tls_client_user, config.tls_client_pattern)


def mapped_user(certificate: Mapping[str, Any], kind: str, pattern: str) -> str | None:
    """Return the user of a certificate, given as Python's ``getpeercert`` does.

    ``kind``: which of its names count. ``pattern``: what such a name has to be, all of it; the
    group in it, or the whole name, is the user's. Names that do not match count for nothing.

    >>> shown = {"subjectAltName": (("DNS", "ada.clients.example"), ("DNS", "elsewhere"))}
    >>> mapped_user(shown, "dns", r"(.+)[.]clients[.]example")
    'ada'
    """
    found = set()
    for name in _names(certificate, kind):
        match = re.fullmatch(pattern or "(.*)", name, re.DOTALL)
        if match is not None:
            found.add(match[match.re.groups] or "")
    if len(found) != 1:
        return None
    name = found.pop()
    try:
        # An authority vouches for a name as it is written, and not for what looks like it.
        return name if check_name(name) == name else None
    except InvalidRequest:
        return None


def _names(certificate: Mapping[str, Any], kind: str) -> Iterator[str]:
    if kind == "cn":
        for relative_name in certificate.get("subject", ()):
            yield from (str(value) for key, value in relative_name if key == "commonName")
    elif kind in _ALTERNATIVES:
        for key, value in certificate.get("subjectAltName", ()):
            if key == _ALTERNATIVES[kind]:
                yield str(value)
