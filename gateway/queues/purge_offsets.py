"""End offsets of the last purge of a queue, kept with the queue's row.

The journal forgets them once nothing before them is left. State rebuilt from the log after a
start, as the deduplication of FIFO queues, must leave out purged messages.
"""

from collections.abc import Mapping, Sequence
from typing import Final

PURGED: Final = "queue.purged"


def parse_purged(attributes: Mapping[str, str]) -> tuple[int, ...]:
    """Return the offsets by partition number; empty for a queue that was never purged.

    >>> parse_purged({"queue.purged": "12,0"})
    (12, 0)
    """
    text = attributes.get(PURGED, "")
    return tuple(int(end) for end in text.split(",")) if text else ()


def format_purged(ends: Sequence[int]) -> str:
    """Return the stored form of the offsets."""
    return ",".join(map(str, ends))
