"""Decoding of many varints at once with numpy, from their given positions.

Positions are clipped to the data: a varint that continues past the end has an arbitrary value, and
the caller has to refuse it.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from gateway.model import VARINT_CONTINUES

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_BITS: Final = 64
_SHORT: Final = np.arange(1 << 14, dtype=np.int64)  # values of one or two bytes
_ZIGZAG: Final[Ints] = (_SHORT >> 1) ^ -(_SHORT & 1)


def varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Return the zigzag varints that begin at ``at``, and the end of each."""
    first = data.take(at, mode="clip")
    ends = at + 1
    goes_on = first >= VARINT_CONTINUES
    if not goes_on.any():
        return _ZIGZAG.take(first), ends
    second = data.take(ends, mode="clip")
    both = (first & 0x7F) | ((second & 0x7F).astype(np.uint16) << 7)
    values = _ZIGZAG.take(np.where(goes_on, both, first))
    ends += goes_on
    longer = np.flatnonzero(goes_on & (second >= VARINT_CONTINUES))
    if len(longer):
        values[longer], ends[longer] = _long(data, at[longer])
    return values, ends


def _long(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Decode varints of any length, up to ten bytes. 64 bits hold one bit of the tenth."""
    first = data.take(at, mode="clip").astype(np.int64)
    raw = first & 0x7F
    ends = at + 1
    goes_on = np.arange(len(at))
    shift = 7
    while len(goes_on) and shift < _BITS:
        following = data.take(ends[goes_on], mode="clip").astype(np.int64)
        raw[goes_on] |= (following & 0x7F) << shift
        ends[goes_on] += 1
        goes_on = goes_on[following >= VARINT_CONTINUES]
        shift += 7
    return (raw.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(raw & 1), ends
