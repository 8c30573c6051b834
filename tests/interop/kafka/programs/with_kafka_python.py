"""kafka-python."""

import argparse
import threading
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.interop.kafka.programs import protocol
from tests.interop.kafka.programs.protocol import Message, run, say, settled

_SEND_S_MAX = 30


def _message(found: Any) -> Message:
    return Message(
        value=found.value,
        key=found.key,
        headers=tuple(found.headers),
        timestamp_ms=found.timestamp,
        partition=found.partition,
        offset=found.offset,
    )


def _outcome(call: Callable[[], Any]) -> int:
    try:
        call()
    except KafkaError as error:
        return int(error.errno)
    return 0


class _Assigned(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing: the client commits offsets itself."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        say({"assigned": sorted(found.partition for found in assigned)})


class KafkaPython:
    """The operations with kafka-python."""

    def produce(self, arguments: argparse.Namespace, messages: list[Message]) -> None:
        """See ``ClientProgram``."""
        compression = None if arguments.compression == "none" else arguments.compression
        producer = KafkaProducer(
            bootstrap_servers=arguments.bootstrap,
            compression_type=compression,
            enable_idempotence=arguments.idempotent,
            acks="all",
            linger_ms=20,
        )
        sent = [
            producer.send(
                arguments.topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                partition=message.partition,
                timestamp_ms=message.timestamp_ms,
            )
            for message in messages
        ]
        for future in sent:
            place = future.get(_SEND_S_MAX)
            say({"partition": place.partition, "offset": place.offset})
        producer.close()

    def consume(self, arguments: argparse.Namespace) -> None:
        """See ``ClientProgram``."""
        consumer = KafkaConsumer(
            bootstrap_servers=arguments.bootstrap, enable_auto_commit=False, group_id=None
        )
        topic = arguments.topic
        if arguments.from_ms is None:
            consumer.assign([TopicPartition(topic, n) for n in range(arguments.partitions)])
            consumer.seek_to_beginning()
        else:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(
                place, consumer.offsets_for_times({place: arguments.from_ms})[place].offset
            )
        for _, found in zip(range(arguments.count), consumer, strict=False):
            say(_message(found))
        consumer.close()

    def member(self, arguments: argparse.Namespace, stop: threading.Event) -> None:
        """See ``ClientProgram``."""
        consumer = KafkaConsumer(
            bootstrap_servers=arguments.bootstrap,
            group_id=arguments.group,
            auto_offset_reset="earliest",
            session_timeout_ms=protocol.SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=protocol.HEARTBEAT_MS,
        )
        consumer.subscribe([arguments.topic], listener=_Assigned())
        while not stop.is_set():
            for batch in consumer.poll(timeout_ms=200).values():
                for found in batch:
                    say(_message(found))
        consumer.close()

    def admin(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """See ``ClientProgram``."""
        admin = KafkaAdminClient(bootstrap_servers=arguments.bootstrap)
        return {
            **self._topic_steps(admin, arguments.topic),
            **self._group_steps(admin, arguments.topic, arguments.group),
            **self._removal_steps(admin, arguments),
        }

    def _topic_steps(self, admin: Any, topic: str) -> dict[str, Any]:
        def create(name: str, configs: dict[str, str]) -> int:
            options = {
                "num_partitions": protocol.PARTITIONS_AT_FIRST,
                "replication_factor": 1,
                "configs": configs,
            }
            return _outcome(lambda: admin.create_topics({name: options}))

        def configs() -> list[str]:
            found = admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all"
            )["topic"][topic]
            return [found[key]["value"] for key in ("retention.ms", "max.message.bytes")]

        seen = {
            "created": create(topic, {"retention.ms": protocol.RETENTION_MS}),
            "created again": create(topic, {}),
            "bad config": create(topic + "-x", {"no.such": "1"}),
            "partitions": self._partition_count(admin, topic, protocol.PARTITIONS_AT_FIRST),
        }
        change = {"max.message.bytes": protocol.MESSAGE_BYTES}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, change)])
        seen["configs"] = settled(configs, [protocol.RETENTION_MS, protocol.MESSAGE_BYTES])
        admin.create_partitions({topic: protocol.PARTITIONS_LATER})
        seen["more partitions"] = self._partition_count(admin, topic, protocol.PARTITIONS_LATER)
        return seen

    def _group_steps(self, admin: Any, topic: str, group: str) -> dict[str, Any]:
        place = TopicPartition(topic, 0)
        admin.alter_group_offsets(group, {place: OffsetAndMetadata(protocol.COMMITTED, "", -1)})
        return {
            "committed": admin.list_group_offsets({group: [place]})[group][place].offset,
            "group state": admin.describe_groups([group])[group]["group_state"].lower(),
            "group listed": self._is_listed(admin, group),
            "group deleted": 0 if admin.delete_groups([group])[group] == "OK" else 1,
            "group listed after": self._is_listed(admin, group),
        }

    def _removal_steps(self, admin: Any, arguments: argparse.Namespace) -> dict[str, Any]:
        topic = arguments.topic
        place = TopicPartition(topic, 0)
        producer = KafkaProducer(bootstrap_servers=arguments.bootstrap, acks="all")
        for number in range(protocol.RECORDS):
            producer.send(topic, value=str(number).encode(), partition=0)
        producer.flush()
        producer.close()
        low = admin.delete_records({place: protocol.DELETE_BEFORE})
        consumer = KafkaConsumer(bootstrap_servers=arguments.bootstrap)
        bounds = [
            consumer.beginning_offsets([place])[place],
            consumer.end_offsets([place])[place],
        ]
        consumer.close()
        return {
            "low watermark": low[place]["low_watermark"],
            "bounds": bounds,
            "deleted": _outcome(lambda: admin.delete_topics([topic])),
            "deleted again": settled(
                lambda: _outcome(lambda: admin.delete_topics([topic])), protocol.UNKNOWN_TOPIC
            ),
        }

    def _partition_count(self, admin: Any, topic: str, expected: int) -> int:
        return settled(lambda: len(admin.describe_topics([topic])[0]["partitions"]), expected)

    def _is_listed(self, admin: Any, group: str) -> bool:
        return group in [found["group_id"] for found in admin.list_groups()]


if __name__ == "__main__":
    run(KafkaPython())
