"""Number of shards of a data directory or a cluster: chosen once, kept in the metadata store.

A directory of a version before shards has internal topics with one partition each, and opens as one
shard. ``headgate reshard`` sets another number; the next start moves the state (see
``gateway.sharded_stream``).
"""

from typing import Final

from gateway.config.base import InvalidSettings
from gateway.metadata.store import MetadataStore
from gateway.slots import SLOT_COUNT
from gateway.topics.manager import TopicManager

SHARD_COUNT: Final = "shard_count"
DEFAULT_SHARD_COUNT: Final = 1
"""Number of shards of a new directory. With more, each shard that is written to has a batch of its
own, which costs a single node more than it gains: docs/adr/0017-shards.md."""


def is_shard_count(count: int) -> bool:
    """Return whether slots can be divided into so many shards.

    >>> is_shard_count(64), is_shard_count(48), is_shard_count(2048)
    (True, False, False)
    """
    return 1 <= count <= SLOT_COUNT and count & (count - 1) == 0


async def shard_count_of(
    metadata: MetadataStore, topics: TopicManager, wanted: int | None
) -> int:
    """Return the number of shards, which a new directory gets from the config, ``wanted``.

    Errors: ``InvalidSettings`` when the config wants another number than the directory has.
    """
    present = _count_in(topics)
    first = present or wanted or DEFAULT_SHARD_COUNT
    count = int(await metadata.once(SHARD_COUNT, str(first)))
    if wanted is not None and wanted != count:
        msg = (
            f"node.shards: {wanted}, but the data directory has {count}; "
            f"`headgate reshard --shards {wanted}` converts it"
        )
        raise InvalidSettings(msg)
    return count


def _count_in(topics: TopicManager) -> int:
    """Return the number of shards by the partitions of internal topics; 0 without any.

    After ``recover-metadata`` a topic has the partitions up to the last one that was written to.
    A lower number than before does no harm: the state moves to its shards.
    """
    counts = [len(topic.partition_ids) for topic in topics.everything() if topic.is_internal]
    highest = max(counts, default=0)
    return 1 << (highest - 1).bit_length() if highest else 0
