"""confluent-kafka (librdkafka)."""

import argparse
import threading
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Delivered
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.interop.kafka.programs import protocol
from tests.interop.kafka.programs.protocol import Message, run, say, settled

_POLL_S = 0.2
_ADMIN_S_MAX = 30


def _message(found: Delivered) -> Message:
    return Message(
        value=found.value(),
        key=found.key(),
        headers=tuple(found.headers() or ()),
        timestamp_ms=found.timestamp()[1],
        partition=found.partition(),
        offset=found.offset(),
    )


def _raise(error: KafkaError | None) -> None:
    if error is not None:
        raise KafkaException(error)


class Confluent:
    """The operations with confluent-kafka."""

    def produce(self, arguments: argparse.Namespace, messages: list[Message]) -> None:
        """See ``ClientProgram``."""
        producer = Producer(
            {
                "bootstrap.servers": arguments.bootstrap,
                "compression.type": arguments.compression,
                "enable.idempotence": arguments.idempotent,
                "linger.ms": 20,
            }
        )

        def told(error: KafkaError | None, found: Delivered) -> None:
            _raise(error)
            say({"partition": found.partition(), "offset": found.offset()})

        for message in messages:
            optional = {} if message.partition is None else {"partition": message.partition}
            producer.produce(
                arguments.topic,
                message.value,
                message.key,
                headers=list(message.headers),
                timestamp=message.timestamp_ms or 0,
                on_delivery=told,
                **optional,
            )
        producer.flush()

    def consume(self, arguments: argparse.Namespace) -> None:
        """See ``ClientProgram``."""
        consumer = Consumer(
            {
                "bootstrap.servers": arguments.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        consumer.assign(self._beginnings(consumer, arguments))
        for _ in range(arguments.count):
            found = consumer.poll(30)
            assert found is not None, "nothing came for 30 s"
            _raise(found.error())
            say(_message(found))
        consumer.close()

    def _beginnings(
        self, consumer: Consumer, arguments: argparse.Namespace
    ) -> list[TopicPartition]:
        topic = arguments.topic
        if arguments.from_ms is not None:
            asked = [TopicPartition(topic, 0, arguments.from_ms)]
            return consumer.offsets_for_times(asked, timeout=30)
        return [TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(arguments.partitions)]

    def member(self, arguments: argparse.Namespace, stop: threading.Event) -> None:
        """See ``ClientProgram``."""
        consumer = Consumer(
            {
                "bootstrap.servers": arguments.bootstrap,
                "group.id": arguments.group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": protocol.SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": protocol.HEARTBEAT_MS,
            }
        )

        def assigned(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            say({"assigned": sorted(found.partition for found in partitions)})

        consumer.subscribe([arguments.topic], on_assign=assigned)
        while not stop.is_set():
            found = consumer.poll(_POLL_S)
            if found is not None:
                _raise(found.error())
                say(_message(found))
        consumer.close()

    def admin(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """See ``ClientProgram``."""
        admin = AdminClient({"bootstrap.servers": arguments.bootstrap})
        return {
            **self._topic_steps(admin, arguments),
            **self._group_steps(admin, arguments),
            **self._removal_steps(admin, arguments),
        }

    def _topic_steps(self, admin: AdminClient, arguments: argparse.Namespace) -> dict[str, Any]:
        topic = arguments.topic
        new = NewTopic(
            topic,
            protocol.PARTITIONS_AT_FIRST,
            1,
            config={"retention.ms": protocol.RETENTION_MS},
        )
        first = self._outcome(admin.create_topics([new])[topic])
        seen = {
            "created": first,
            "created again": self._outcome(admin.create_topics([new])[topic]),
            "bad config": self._outcome(
                admin.create_topics([NewTopic(topic + "-x", 1, 1, config={"no.such": "1"})])[
                    topic + "-x"
                ]
            ),
            "partitions": self._partition_count(admin, topic, protocol.PARTITIONS_AT_FIRST),
        }
        change = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(
                    "max.message.bytes",
                    protocol.MESSAGE_BYTES,
                    incremental_operation=AlterConfigOpType.SET,
                )
            ],
        )
        admin.incremental_alter_configs([change])[change].result(_ADMIN_S_MAX)
        asked = ConfigResource(ResourceType.TOPIC, topic)

        def configs() -> list[str]:
            found = admin.describe_configs([asked])[asked].result(_ADMIN_S_MAX)
            return [found[key].value for key in ("retention.ms", "max.message.bytes")]

        seen["configs"] = settled(configs, [protocol.RETENTION_MS, protocol.MESSAGE_BYTES])
        more = NewPartitions(topic, protocol.PARTITIONS_LATER)
        admin.create_partitions([more])[topic].result(_ADMIN_S_MAX)
        seen["more partitions"] = self._partition_count(admin, topic, protocol.PARTITIONS_LATER)
        return seen

    def _group_steps(self, admin: AdminClient, arguments: argparse.Namespace) -> dict[str, Any]:
        topic, group = arguments.topic, arguments.group
        consumer = Consumer({"bootstrap.servers": arguments.bootstrap, "group.id": group})
        place = TopicPartition(topic, 0, protocol.COMMITTED)
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
        offsets = admin.list_consumer_group_offsets([asked])[group].result(_ADMIN_S_MAX)
        described = admin.describe_consumer_groups([group])[group].result(_ADMIN_S_MAX)
        listed = admin.list_consumer_groups().result(_ADMIN_S_MAX)
        deleted = self._outcome(admin.delete_consumer_groups([group])[group])
        after = admin.list_consumer_groups().result(_ADMIN_S_MAX)
        return {
            "committed": offsets.topic_partitions[0].offset,
            "group state": described.state.name.lower(),
            "group listed": group in [found.group_id for found in listed.valid],
            "group deleted": deleted,
            "group listed after": group in [found.group_id for found in after.valid],
        }

    def _removal_steps(
        self, admin: AdminClient, arguments: argparse.Namespace
    ) -> dict[str, Any]:
        topic = arguments.topic
        producer = Producer({"bootstrap.servers": arguments.bootstrap})
        for number in range(protocol.RECORDS):
            producer.produce(topic, str(number), partition=0)
        producer.flush()
        cut = TopicPartition(topic, 0, protocol.DELETE_BEFORE)
        low = next(iter(admin.delete_records([cut]).values())).result(_ADMIN_S_MAX)
        consumer = Consumer({"bootstrap.servers": arguments.bootstrap, "group.id": "unused"})
        bounds = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_ADMIN_S_MAX)
        consumer.close()
        deleted = self._outcome(admin.delete_topics([topic])[topic])
        return {
            "low watermark": low.low_watermark,
            "bounds": list(bounds),
            "deleted": deleted,
            "deleted again": settled(
                lambda: self._outcome(admin.delete_topics([topic])[topic]),
                protocol.UNKNOWN_TOPIC,
            ),
        }

    def _partition_count(self, admin: AdminClient, topic: str, expected: int) -> int:
        def count() -> int:
            return len(admin.list_topics(timeout=_ADMIN_S_MAX).topics[topic].partitions)

        return settled(count, expected)

    def _outcome(self, future: Any) -> int:
        try:
            future.result(_ADMIN_S_MAX)
        except KafkaException as error:
            return int(error.args[0].code())
        return 0


if __name__ == "__main__":
    run(Confluent())
