"""Topics rebuilt from the partitions in the log, for a lost metadata store.

The log knows uuid, name and number of every partition that was ever written to, and which queues
were read, and no more: configs, settings of queues, users, access keys, rules and addresses are
gone, and partitions that were never written to get new ids.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from features.queue.model import Order
from gateway.contributions import Contributions
from gateway.metadata.store import DeletedRange, MetadataStore, PartitionRange, TopicRow
from gateway.model import PartitionIdentity, TopicName
from gateway.queues.model import QueueRow, QueueSettings

FIRST_PARTITION_ID: Final = 1
_FIFO_SUFFIX: Final = (
    ".fifo"  # as in ``gateway.queues.create_queue``, which needs a running node
)
_UUID_BYTES: Final = 16
_LANE_HEAD_BYTES: Final = 20  # uuid and partition number come before the group


class QueuePlace(NamedTuple):
    """Positions of a queue, as found in its journal."""

    topic_uuid: UUID
    group: str


def parse_lane_id(key: bytes) -> QueuePlace | None:
    """Return the lane of a journal key (``gateway.queues.journal.lane_id``), or None."""
    try:
        group = key[_LANE_HEAD_BYTES:].decode()
    except UnicodeDecodeError:
        return None
    return QueuePlace(UUID(bytes=key[:_UUID_BYTES]), group) if group else None


async def restore_queues(
    metadata: MetadataStore, places: Iterable[QueuePlace], *, created_unix_ms: int = 0
) -> list[QueuePlace]:
    """Add missing queues of ``places`` to the store; return all its queues.

    Their settings are the defaults, but for the order where the name tells it, and none owns
    its topic: deleting such a queue deletes no message that others may read. What was in
    flight or settled is in the journal still, and holds. Queues of topics that are gone are
    left out. Errors: ``StorageUnavailable``.
    """
    names = {row.uuid: row.name.name for row in await metadata.topics()}
    there = {QueuePlace(row.topic_uuid, row.group) for row in await metadata.queues()}
    for place in sorted(set(places) - there):
        if place.topic_uuid in names:
            is_fifo = names[place.topic_uuid].endswith(_FIFO_SUFFIX)
            row = QueueRow(
                *place,
                QueueSettings(order=Order.KEY if is_fifo else Order.NONE),
                attributes={},
                tags={},
                owns_topic=False,
                created_unix_ms=created_unix_ms,
                changed_unix_ms=created_unix_ms,
            )
            await metadata.put_queue(row)
            there.add(place)
    return sorted(there)


async def restore_topics(
    metadata: MetadataStore,
    identities: Iterable[PartitionIdentity],
    *,
    data_uuid: UUID | None = None,
    created_unix_ms: int = 0,
    contributions: Contributions | None = None,
) -> list[TopicRow]:
    """Store the topics rebuilt from ``identities`` and return them.

    Rows of the store that bear the same name or uuid are replaced, and so are those that claim
    a partition id which, by the log, is another topic's; others stay. Of two topics with one
    name the one with the higher partition ids is the younger; the older must have been deleted,
    so its partitions are handed to the storage for deletion at the next start. With
    ``data_uuid`` the store then belongs to that data directory. ``contributions`` tell which
    topics are internal. Errors: ``StorageUnavailable``.
    """
    contributions = contributions or Contributions()
    known = sorted(set(identities))
    next_id = max((identity.partition_id + 1 for identity in known), default=FIRST_PARTITION_ID)
    rows = await metadata.topics()
    # Ids that the store has given out since, to partitions that the log has not seen, stay
    # taken.
    for row in rows:
        for part in row.ranges:
            next_id = max(next_id, part.first_partition_id + part.length)
    live, older = _by_age(known)
    topics: list[TopicRow] = []
    for identities_of_one in live:
        row, next_id = _rebuild(identities_of_one, next_id, created_unix_ms, contributions)
        topics.append(row)
    deleted = [
        DeletedRange(one.topic_uuid, one.topic, PartitionRange(one.number, one.partition_id, 1))
        for identities_of_one in older
        for one in identities_of_one
    ]
    outdated = [row.uuid for row in rows if _is_contradicted(row, known)]
    await metadata.restore(topics, deleted, outdated=outdated, next_partition_id=next_id)
    if data_uuid is not None:
        await metadata.set_data_uuid(data_uuid)
    return topics


def _is_contradicted(row: TopicRow, known: list[PartitionIdentity]) -> bool:
    """Say whether a partition of ``row`` belongs to another topic in the log."""
    for part in row.ranges:
        at = bisect_left(known, part.first_partition_id, key=_partition_id)
        end = bisect_left(known, part.first_partition_id + part.length, key=_partition_id)
        if any(identity.topic_uuid != row.uuid for identity in known[at:end]):
            return True
    return False


def _partition_id(identity: PartitionIdentity) -> int:
    return identity.partition_id


def _by_age(
    identities: list[PartitionIdentity],
) -> tuple[list[list[PartitionIdentity]], list[list[PartitionIdentity]]]:
    """Return the identities by topic: live topics first, then those with a newer namesake.

    ``identities`` are sorted by partition id, and ids only grow, so the heir is seen last.
    """
    by_uuid: dict[UUID, list[PartitionIdentity]] = {}
    heirs: dict[TopicName, UUID] = {}
    for identity in identities:
        by_uuid.setdefault(identity.topic_uuid, []).append(identity)
        heirs[identity.topic] = identity.topic_uuid
    live = [group for uuid, group in by_uuid.items() if heirs[group[0].topic] == uuid]
    older = [group for uuid, group in by_uuid.items() if heirs[group[0].topic] != uuid]
    return live, older


def _rebuild(
    identities: list[PartitionIdentity],
    next_id: int,
    created_unix_ms: int,
    contributions: Contributions,
) -> tuple[TopicRow, int]:
    """Return a topic with all numbers up to its highest, and the next partition id after it."""
    first = identities[0]
    ids = {identity.number: identity.partition_id for identity in identities}
    for number in range(max(ids)):
        if number not in ids:
            ids[number] = next_id
            next_id += 1
    row = TopicRow(
        first.topic_uuid,
        first.topic,
        contributions.is_internal_topic(first.topic.name),
        created_unix_ms,
        tuple(_to_ranges(ids)),
        {},
    )
    return row, next_id


def _to_ranges(ids: dict[int, int]) -> Iterable[PartitionRange]:
    """Join partitions whose numbers and ids are both consecutive."""
    # Where both grow by one, their difference stays the same.
    for _, run in groupby(sorted(ids.items()), key=lambda item: item[1] - item[0]):
        items = list(run)
        yield PartitionRange(items[0][0], items[0][1], len(items))
