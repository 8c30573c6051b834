"""aiokafka. Its admin client cannot delete groups, nor alter a single config."""

import argparse
import asyncio
import threading
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from tests.interop.kafka.programs import protocol
from tests.interop.kafka.programs.protocol import Message, run, say

_CONFIG_KEYS = ("retention.ms", "max.message.bytes")


def _message(found: Any) -> Message:
    return Message(
        value=found.value,
        key=found.key,
        headers=tuple(found.headers),
        timestamp_ms=found.timestamp,
        partition=found.partition,
        offset=found.offset,
    )


class _Assigned(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing: the client commits offsets itself."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        say({"assigned": sorted(found.partition for found in assigned)})


class Aiokafka:
    """The operations with aiokafka."""

    def produce(self, arguments: argparse.Namespace, messages: list[Message]) -> None:
        """See ``ClientProgram``."""
        asyncio.run(self._produce(arguments, messages))

    async def _produce(self, arguments: argparse.Namespace, messages: list[Message]) -> None:
        compression = None if arguments.compression == "none" else arguments.compression
        async with AIOKafkaProducer(
            bootstrap_servers=arguments.bootstrap,
            compression_type=compression,
            enable_idempotence=arguments.idempotent,
            acks="all",
            linger_ms=20,
        ) as producer:
            sent = [
                await producer.send(
                    arguments.topic,
                    message.value,
                    message.key,
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                    headers=list(message.headers),
                )
                for message in messages
            ]
            for place in await asyncio.gather(*sent):
                say({"partition": place.partition, "offset": place.offset})

    def consume(self, arguments: argparse.Namespace) -> None:
        """See ``ClientProgram``."""
        asyncio.run(self._consume(arguments))

    async def _consume(self, arguments: argparse.Namespace) -> None:
        topic = arguments.topic
        async with AIOKafkaConsumer(
            bootstrap_servers=arguments.bootstrap, enable_auto_commit=False
        ) as consumer:
            if arguments.from_ms is None:
                consumer.assign([TopicPartition(topic, n) for n in range(arguments.partitions)])
                await consumer.seek_to_beginning()
            else:
                place = TopicPartition(topic, 0)
                consumer.assign([place])
                found = await consumer.offsets_for_times({place: arguments.from_ms})
                consumer.seek(place, found[place].offset)
            for _ in range(arguments.count):
                say(_message(await consumer.getone()))

    def member(self, arguments: argparse.Namespace, stop: threading.Event) -> None:
        """See ``ClientProgram``."""
        asyncio.run(self._member(arguments, stop))

    async def _member(self, arguments: argparse.Namespace, stop: threading.Event) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=arguments.bootstrap,
            group_id=arguments.group,
            auto_offset_reset="earliest",
            session_timeout_ms=protocol.SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=protocol.HEARTBEAT_MS,
        )
        consumer.subscribe([arguments.topic], listener=_Assigned())
        async with consumer:
            while not stop.is_set():
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    for found in batch:
                        say(_message(found))

    def admin(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """See ``ClientProgram``."""
        return asyncio.run(self._admin(arguments))

    async def _admin(self, arguments: argparse.Namespace) -> dict[str, Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=arguments.bootstrap)
        await admin.start()
        try:
            return {
                **await self._topic_steps(admin, arguments.topic),
                **await self._group_steps(admin, arguments),
                **await self._removal_steps(admin, arguments),
            }
        finally:
            await admin.close()

    async def _topic_steps(self, admin: Any, topic: str) -> dict[str, Any]:
        async def create(name: str, configs: dict[str, str]) -> int:
            new = NewTopic(name, protocol.PARTITIONS_AT_FIRST, 1, topic_configs=configs)
            return int((await admin.create_topics([new])).topic_errors[0][1])

        async def configs(expected: list[str]) -> list[str]:
            asked = ConfigResource(ConfigResourceType.TOPIC, topic)
            found: dict[str, str] = {}
            for _ in range(200):
                (answer,) = await admin.describe_configs([asked])
                found = {row[0]: row[1] for row in answer.resources[0][4]}
                if [found.get(key) for key in _CONFIG_KEYS] == expected:
                    break
                await asyncio.sleep(0.05)
            return [found[key] for key in _CONFIG_KEYS]

        seen: dict[str, Any] = {
            "created": await create(topic, {"retention.ms": protocol.RETENTION_MS}),
            "created again": await create(topic, {}),
            "bad config": await create(topic + "-x", {"no.such": "1"}),
            "partitions": await self._count(admin, topic, protocol.PARTITIONS_AT_FIRST),
        }
        wanted = dict(
            zip(_CONFIG_KEYS, (protocol.RETENTION_MS, protocol.MESSAGE_BYTES), strict=True)
        )
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, wanted)])
        seen["configs"] = await configs(list(wanted.values()))
        await admin.create_partitions({topic: NewPartitions(protocol.PARTITIONS_LATER)})
        seen["more partitions"] = await self._count(admin, topic, protocol.PARTITIONS_LATER)
        return seen

    async def _group_steps(self, admin: Any, arguments: argparse.Namespace) -> dict[str, Any]:
        place = TopicPartition(arguments.topic, 0)
        group = arguments.group
        async with AIOKafkaConsumer(
            bootstrap_servers=arguments.bootstrap, group_id=group, enable_auto_commit=False
        ) as consumer:
            consumer.assign([place])
            await consumer.commit({place: OffsetAndMetadata(protocol.COMMITTED, "")})
        offsets = await admin.list_consumer_group_offsets(group, partitions=[place])
        (described,) = await admin.describe_consumer_groups([group])
        return {
            "committed": offsets[place].offset,
            "group state": described.groups[0][2].lower(),
            "group listed": group in [row[0] for row in await admin.list_consumer_groups()],
        }

    async def _removal_steps(self, admin: Any, arguments: argparse.Namespace) -> dict[str, Any]:
        topic = arguments.topic
        place = TopicPartition(topic, 0)
        async with AIOKafkaProducer(
            bootstrap_servers=arguments.bootstrap, acks="all"
        ) as producer:
            for number in range(protocol.RECORDS):
                await producer.send(topic, str(number).encode(), partition=0)
        low = await admin.delete_records({place: RecordsToDelete(protocol.DELETE_BEFORE)})
        async with AIOKafkaConsumer(bootstrap_servers=arguments.bootstrap) as consumer:
            first = (await consumer.beginning_offsets([place]))[place]
            end = (await consumer.end_offsets([place]))[place]
        seen = {"low watermark": low[place], "bounds": [first, end]}
        seen["deleted"] = (await admin.delete_topics([topic])).topic_error_codes[0][1]
        seen["deleted again"] = await self._deleted_again(admin, topic)
        return seen

    async def _deleted_again(self, admin: Any, topic: str) -> int:
        code = 0
        for _ in range(200):
            code = int((await admin.delete_topics([topic])).topic_error_codes[0][1])
            if code == protocol.UNKNOWN_TOPIC:
                break
            await asyncio.sleep(0.05)
        return code

    async def _count(self, admin: Any, topic: str, expected: int) -> int:
        count = 0
        for _ in range(200):
            (described,) = await admin.describe_topics([topic])
            count = len(described["partitions"])
            if count == expected:
                break
            await asyncio.sleep(0.05)
        return count


if __name__ == "__main__":
    run(Aiokafka())
