"""Cache of encoded topics for Metadata responses.

Two layers, both by version of the API. The bytes of one topic are valid until its partitions
change, so a new topic does not cause the others to be encoded again. A list of all topics is
valid for one principal, until any topic or rule changes. For the loop's thread only.

All is dropped when the owner or the epoch of a shard changes.
"""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple
from uuid import UUID

from adapters.kafka.codecs.metadata_codec import (
    NO_LEADER,
    MetadataResponseTopic,
    encode_topic,
    encode_topics,
)
from adapters.kafka.errors import ErrorCode
from gateway.auth.ports import Principal
from gateway.placement import Placement, shard_of
from gateway.topics.manager import Topic

LISTS_BYTES_MAX: Final = 64 * 1024 * 1024
VERSIONS_MAX: Final = (
    4  # API versions whose topics are cached; clients of a site rarely use more
)


class _CachedList(NamedTuple):
    """An encoded list of topics, and the revisions of topics and rules it is valid for."""

    revisions: tuple[int, int]
    data: bytes


class MetadataCache:
    """Encoded topics and lists of topics; see the module."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._encoded_topics: dict[int, dict[UUID, tuple[int, bytes]]] = {}
        self._lists: dict[tuple[int, str, Principal], _CachedList] = {}
        self._lists_bytes = 0
        placement.on_change.append(self._forget)

    def _forget(self, _shards: Collection[int]) -> None:
        self._encoded_topics.clear()
        self._lists.clear()
        self._lists_bytes = 0

    def topic_list(
        self,
        version: int,
        namespace: str,
        principal: Principal,
        revisions: tuple[int, int],
        visible: Callable[[], list[Topic]],
    ) -> bytes:
        """Return the encoded array of topics; ``visible`` is called when it is not cached."""
        key = (version, namespace, principal)
        kept = self._lists.get(key)
        if kept is not None and kept.revisions == revisions:
            return kept.data
        data = self._encode(version, visible())
        if kept is not None:
            self._drop(key)
        self._keep(key, _CachedList(revisions, data))
        return data

    def _encode(self, version: int, topics: list[Topic]) -> bytes:
        """Encode a list of topics; cached topics that are not in it are dropped."""
        known = self._encoded_topics.pop(version, {})
        encoded: dict[UUID, tuple[int, bytes]] = {}
        epoch = _common_epoch(self._placement)
        for topic in topics:
            count = len(topic.partition_ids)
            one = known.get(topic.uuid)
            if one is None or one[0] != count:
                answered = topic_response(topic, self._placement, common_epoch=epoch)
                one = (count, encode_topic(version, answered))
            encoded[topic.uuid] = one
        self._encoded_topics[version] = encoded
        if len(self._encoded_topics) > VERSIONS_MAX:
            del self._encoded_topics[next(iter(self._encoded_topics))]
        return encode_topics(version, [data for _, data in encoded.values()])

    def _keep(self, key: tuple[int, str, Principal], kept: _CachedList) -> None:
        """Cache a list; above ``LISTS_BYTES_MAX`` the oldest lists are dropped."""
        self._lists[key] = kept
        self._lists_bytes += len(kept.data)
        while self._lists_bytes > LISTS_BYTES_MAX:
            self._drop(next(iter(self._lists)))

    def _drop(self, key: tuple[int, str, Principal]) -> None:
        self._lists_bytes -= len(self._lists.pop(key).data)


def topic_response(
    topic: Topic, placement: Placement, *, common_epoch: int | None = None
) -> MetadataResponseTopic:
    """Return the response for an existing topic, without authorized operations.

    ``common_epoch`` is the leader epoch of all shards if they have the same, and are this node's:
    it saves hashing each partition to its slot, nearly all of the work (0.02 s instead of 0.38 s
    for 100,000).
    """
    count = len(topic.partition_ids)
    leader_ids: list[int] | None = None
    if common_epoch is None:
        leaders = leaders_of(topic, placement, range(count))
        epochs = [epoch for _, epoch in leaders]
        leader_ids = None if placement.owns_all else [leader for leader, _ in leaders]
    else:
        epochs = [common_epoch] * count
    return MetadataResponseTopic(
        ErrorCode.NONE,
        topic.name.name,
        topic.uuid,
        is_internal=topic.is_internal,
        leader_id=placement.node_id,
        leader_epochs=epochs,
        leader_ids=leader_ids,
    )


def leaders_of(topic: Topic, placement: Placement, numbers: range) -> list[tuple[int, int]]:
    """Return (id of the leader, leader epoch) of the partitions ``numbers``."""
    leaders = []
    for number in numbers:
        shard = shard_of(topic, number, placement)
        owner = placement.owner(shard)
        leader_id = NO_LEADER if owner is None else owner.node_id
        leaders.append((leader_id, placement.epoch(shard)))
    return leaders


def _common_epoch(placement: Placement) -> int | None:
    """Return the leader epoch of all shards; None if they differ, or are not all this node's."""
    if not placement.owns_all:
        return None
    epochs = {placement.epoch(shard) for shard in range(placement.shard_count)}
    return epochs.pop() if len(epochs) == 1 else None
