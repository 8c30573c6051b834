"""End of a certificate's validity, read from its PEM file (RFC 5280 section 4.1).

The standard library reads certificates of peers only, and a parser of certificates is a large
dependency for one date: the fields before it are skipped by their lengths.
"""

import re
from calendar import timegm
from pathlib import Path
from ssl import PEM_cert_to_DER_cert
from typing import Final, NamedTuple

_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)
_VERSION_TAG: Final = 0xA0
_UTC_TIME: Final = 0x17
_LONG_FORM: Final = 0x80
_UTC_TIME_PIVOT: Final = 50  # RFC 5280: two digits of 50 and more are of the 20th century
_BEFORE_VALIDITY: Final = 3  # signature algorithm and issuer follow the serial number


class _Item(NamedTuple):
    """An item of DER: its tag, and where its content lies."""

    tag: int
    start: int
    end: int


def expiry_unix_s(path: Path) -> int | None:
    """Return when the first certificate of a PEM file expires; None if that cannot be read."""
    try:
        found = _CERTIFICATE.search(path.read_text("latin-1"))
        return None if found is None else _not_after(PEM_cert_to_DER_cert(found[0]))
    except (OSError, ValueError, IndexError):
        return None


def _not_after(der: bytes) -> int:
    certificate = _item(der, 0)
    fields = _item(der, certificate.start)
    item = _item(der, fields.start)
    if item.tag == _VERSION_TAG:
        item = _item(der, item.end)
    for _ in range(_BEFORE_VALIDITY):
        item = _item(der, item.end)
    not_before = _item(der, item.start)
    not_after = _item(der, not_before.end)
    return _time(not_after.tag, der[not_after.start : not_after.end].decode("ascii"))


def _item(der: bytes, at: int) -> _Item:
    """Return the item that begins at an index. Error: ``IndexError`` behind the end."""
    length, start = der[at + 1], at + 2
    if length >= _LONG_FORM:
        length_bytes = length - _LONG_FORM
        length = int.from_bytes(der[start : start + length_bytes], "big")
        start += length_bytes
    return _Item(der[at], start, start + length)


def _time(tag: int, text: str) -> int:
    """Return a UTCTime (``YYMMDDHHMMSSZ``) or GeneralizedTime (``YYYYMMDDHHMMSSZ``) in unix s."""
    year_digits = 2 if tag == _UTC_TIME else 4
    year = int(text[:year_digits])
    if tag == _UTC_TIME:
        year += 1900 if year >= _UTC_TIME_PIVOT else 2000
    rest = text[year_digits:]
    month, day, hour, minute, second = (int(rest[at : at + 2]) for at in range(0, 10, 2))
    return timegm((year, month, day, hour, minute, second))
