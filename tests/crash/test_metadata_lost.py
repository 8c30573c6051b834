"""The SQL database is lost: the node says so, and the log gives topics and records back."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from gateway.testing.process import ProgramFailed
from tests.crash.load import committed, read_all
from tests.support.gateway import Gateway
from tests.support.kafka_wire import Connection, batch
from tests.support.topics import create_topic

pytestmark = pytest.mark.crash

PARTITIONS = 3


def produce(gateway: Gateway, topic: str) -> dict[tuple[int, int], bytes]:
    sent = {}
    with Connection(gateway.kafka_port) as connection:
        for number in range(30):
            partition = number % PARTITIONS
            value = b"%s %d" % (topic.encode(), number)
            code, offset = connection.produce(topic, partition, batch([value]))
            assert code == 0
            sent[partition, offset] = value
    return sent


@pytest.mark.parametrize("clean_stop", [True, False], ids=["stopped", "killed"])
def test_topics_come_back_from_the_log(tmp_path: Path, *, clean_stop: bool) -> None:
    with Gateway(tmp_path / "data") as gateway:
        topics = [create_topic(gateway.bootstrap, partitions=PARTITIONS) for _ in range(2)]
        sent = {topic: produce(gateway, topic) for topic in topics}
        place = TopicPartition(topics[0], 0, 4)
        consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "kept"})
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()
        gateway.stop() if clean_stop else gateway.kill()
        for file in gateway.data_dir.glob("*.sqlite*"):
            file.unlink()

        with pytest.raises(ProgramFailed, match="recover-metadata"):
            gateway.start()
        gateway.run_command(
            "recover-metadata", "--yes", "--set", f"node.data_dir={gateway.data_dir}"
        )
        gateway.start()

        for topic in topics:
            assert read_all(gateway.bootstrap, topic, PARTITIONS) == sent[topic]
            more = produce(gateway, topic)
            assert min(offset for _partition, offset in more) == 10
        assert committed(gateway.bootstrap, topics[0], "kept", PARTITIONS) == {0: 4}
