"""A member of a share group that speaks the protocol by kio's classes, over a socket."""

import importlib
import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, Final, Protocol
from uuid import UUID

from tests.adapters.kafka.codecs import kio_codec
from tests.support.kafka_wire import text

HEARTBEAT: Final = 76
DESCRIBE: Final = 77
FETCH: Final = 78
ACKNOWLEDGE: Final = 79
DESCRIBE_OFFSETS: Final = 90
ALTER_OFFSETS: Final = 91
DELETE_OFFSETS: Final = 92

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4

Batch = tuple[int, int, Sequence[int]]
"""First and last offset, acknowledge types."""


class SocketClient(Protocol):
    """A connection that sends frames and returns (correlation id, body) of answers."""

    def send(self, *frames: bytes) -> None: ...

    async def answer(self) -> tuple[int, bytes]: ...


def part_of(kind: Any, name: str) -> Any:
    """Return the class of a nested structure of a kio entity."""
    return getattr(importlib.import_module(kind.__module__), name)


def frame(api_key: int, version: int, correlation_id: int, entity: Any) -> bytes:
    """Return a request with a header of version 2."""
    header = struct.pack(">hhi", api_key, version, correlation_id) + text("wire") + b"\0"
    body = header + kio_codec.encode(entity)
    return struct.pack(">i", len(body)) + body


class ShareMember:
    """One member and its share session. ``epoch`` is that of its next request."""

    def __init__(self, client: SocketClient, group: str = "g", member_id: str = "m") -> None:
        self.client = client
        self.group = group
        self.member_id = member_id
        self.member_epoch = 0
        self.epoch = 0
        self._ids = count(1)

    def send(self, api_key: int, version: int, **fields: Any) -> None:
        """Send a request."""
        kind = kio_codec.request_class(api_key, version)
        self.client.send(frame(api_key, version, next(self._ids), kind(**fields)))

    async def call(self, api_key: int, version: int, **fields: Any) -> Any:
        """Return the answer to a request."""
        self.send(api_key, version, **fields)
        return await self.answer(api_key, version)

    async def answer(self, api_key: int, version: int) -> Any:
        """Return the next answer, which is that of such a request."""
        _, body = await self.client.answer()
        return kio_codec.decode(kio_codec.response_class(api_key, version), body[1:])

    async def beat(self, *names: str, epoch: int | None = None) -> Any:
        """Send a heartbeat; ``names`` are the subscription, none for an unchanged one."""
        answer = await self.call(
            HEARTBEAT,
            1,
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.member_epoch if epoch is None else epoch,
            rack_id=None,
            subscribed_topic_names=names or None,
        )
        if not answer.error_code.value:
            self.member_epoch = answer.member_epoch
        return answer

    def begin_fetch(
        self,
        partitions: Mapping[tuple[UUID, int], Sequence[Batch]],
        *,
        version: int = 1,
        **limits: Any,
    ) -> None:
        """Send a ShareFetch with acknowledgements by partition."""
        kind = kio_codec.request_class(FETCH, version)
        fields: dict[str, Any] = {
            "max_wait": timedelta(milliseconds=limits.pop("wait_ms", 0)),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "forgotten_topics_data": (),
            **limits,
        }
        self.send(
            FETCH,
            version,
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self._next_epoch(),
            topics=_topics(kind, "FetchTopic", "FetchPartition", partitions),
            **fields,
        )

    async def fetch(
        self,
        partitions: Mapping[tuple[UUID, int], Sequence[Batch]],
        *,
        version: int = 1,
        **limits: Any,
    ) -> Any:
        """Return the answer to a ShareFetch."""
        self.begin_fetch(partitions, version=version, **limits)
        return await self.answer(FETCH, version)

    async def acknowledge(
        self,
        partitions: Mapping[tuple[UUID, int], Sequence[Batch]],
        *,
        version: int = 1,
        **fields: Any,
    ) -> Any:
        """Return the answer to a ShareAcknowledge."""
        kind = kio_codec.request_class(ACKNOWLEDGE, version)
        return await self.call(
            ACKNOWLEDGE,
            version,
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self._next_epoch(),
            topics=_topics(kind, "AcknowledgeTopic", "AcknowledgePartition", partitions),
            **fields,
        )

    def _next_epoch(self) -> int:
        epoch = self.epoch
        if epoch >= 0:
            self.epoch += 1
        return epoch


def _topics(
    kind: Any,
    topic_name: str,
    partition_name: str,
    partitions: Mapping[tuple[UUID, int], Sequence[Batch]],
) -> tuple[Any, ...]:
    batch_class = part_of(kind, "AcknowledgementBatch")
    by_topic: dict[UUID, list[Any]] = {}
    for (topic_id, number), batches in partitions.items():
        made = tuple(
            batch_class(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
            for first, last, types in batches
        )
        partition = part_of(kind, partition_name)(
            partition_index=number, acknowledgement_batches=made
        )
        by_topic.setdefault(topic_id, []).append(partition)
    topic_class = part_of(kind, topic_name)
    return tuple(
        topic_class(topic_id=topic_id, partitions=tuple(some))
        for topic_id, some in by_topic.items()
    )


def acquired(answer: Any) -> list[tuple[int, int, int, int]]:
    """Return (partition, first, last, delivery count) of what an answer says is acquired."""
    return [
        (part.partition_index, one.first_offset, one.last_offset, one.delivery_count)
        for topic in answer.responses
        for part in topic.partitions
        for one in part.acquired_records
    ]


def codes(answer: Any) -> list[tuple[int, int]]:
    """Return (error code, acknowledge error code) of each partition of a ShareFetch answer."""
    return [
        (int(part.error_code.value), int(part.acknowledge_error_code))
        for topic in answer.responses
        for part in topic.partitions
    ]
