"""Where the last purge of a queue ended, as it is kept with the queue's row.

The journal forgets it once nothing before it is left. Who rebuilds something from the log after a
start, as the deduplication of FIFO queues does, must not find what was purged.
"""

from collections.abc import Mapping, Sequence
from typing import Final

PURGED: Final = "queue.purged"


def parse_purged(attributes: Mapping[str, str]) -> tuple[int, ...]:
    """Return the offsets, by number of the partition; nothing of a queue that was never purged.

    >>> parse_purged({"queue.purged": "12,0"})
    (12, 0)
    """
    text = attributes.get(PURGED, "")
    return tuple(int(end) for end in text.split(",")) if text else ()


def format_purged(ends: Sequence[int]) -> str:
    """Return the offsets as they are kept."""
    return ",".join(map(str, ends))
