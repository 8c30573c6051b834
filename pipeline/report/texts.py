"""Formatting of a report's values for people."""

from datetime import UTC, datetime
from typing import Final, TypeGuard

_KIBI: Final = 1_024
_MOMENTS_END_MS: Final = 253_402_300_800_000
_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(size_bytes: float) -> str:
    """Format a number of bytes for people.

    >>> bytes_text(0), bytes_text(1_023), bytes_text(1_536), bytes_text(200 * 1_024**2)
    ('0 B', '1,023 B', '1.5 KiB', '200 MiB')
    """
    size, unit = float(size_bytes), 0
    while abs(size) >= _KIBI and unit < len(_BYTE_UNITS) - 1:
        size /= _KIBI
        unit += 1
    digits = 0 if unit == 0 or size >= 100 or size == int(size) else 1  # noqa: PLR2004
    return f"{size:,.{digits}f} {_BYTE_UNITS[unit]}"


def count_text(count: float) -> str:
    """Format a count for an axis.

    >>> count_text(950), count_text(12_500), count_text(3_000_000)
    ('950', '12.5k', '3M')
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + name
    return f"{count:,.0f}"


def ms_text(ms: float) -> str:
    """Format a duration for an axis.

    >>> ms_text(250), ms_text(1_500), ms_text(120_000), ms_text(7_200_000)
    ('250 ms', '1.5 s', '2 min', '2 h')
    """
    for unit, name in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if abs(ms) >= unit:
            return f"{ms / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{ms:,.0f} ms"


def span_text(span_ms: int) -> str:
    """Return the name of a step's duration.

    >>> span_text(60_000), span_text(900_000), span_text(3_600_000), span_text(172_800_000)
    ('minute', '15 minutes', 'hour', '2 days')
    """
    for unit, name in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute")):
        if span_ms % unit == 0:
            count = span_ms // unit
            return name if count == 1 else f"{count} {name}s"
    return f"{span_ms:,} ms"


def is_moment(unix_ms: int | None) -> TypeGuard[int]:
    """Return whether a time is between 1970 and 9999, since producers can write any number.

    >>> is_moment(-1), is_moment(1_700_000_000_000), is_moment(1 << 60), is_moment(None)
    (False, True, False, False)
    """
    return unix_ms is not None and 0 <= unix_ms < _MOMENTS_END_MS


def moment_text(unix_ms: int) -> str:
    """Format a time for people.

    >>> moment_text(1_700_000_000_000)
    '2023-11-14 22:13 UTC'
    """
    if not is_moment(unix_ms):
        return f"{unix_ms:,} ms"
    return f"{datetime.fromtimestamp(unix_ms / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
