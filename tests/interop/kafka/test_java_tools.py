"""Apache Kafka's own tools that verify and measure a cluster."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from gateway.testing.process import Program
from tests.support.toolchain import java_classpath
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.java]

MESSAGES = 3_000
COPIED = 1_000
DONE_S_MAX = 400  # three JVMs start at once, on a machine that has other work
SESSION_MS = 45_000  # nobody dies here: who is slow shall not be taken for dead
TOOLS = "org.apache.kafka.tools"


def tool(name: str, *arguments: str) -> Program:
    classpath = java_classpath()
    return Program(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, f"{TOOLS}.{name}", *arguments],
        merge_errors=False,
    )


def rows(program: Program, name: str) -> Iterator[dict[str, Any]]:
    for line in list(program.lines):
        if line.startswith("{"):
            row = json.loads(line)
            if row["name"] == name:
                yield row


def test_verifiable_producer_and_consumers_agree(bootstrap: str) -> None:
    topic = create_topic(bootstrap, partitions=6)
    group = fresh_name("g")
    place = ["--bootstrap-server", bootstrap, "--topic", topic]
    producer = tool(
        "VerifiableProducer", *place, "--max-messages", str(MESSAGES), "--acks", "-1"
    )
    consumers = [
        tool("VerifiableConsumer", *place, "--group-id", group, "--verbose",
             "--reset-policy", "earliest", "--session-timeout", str(SESSION_MS))
        for _ in range(2)
    ]  # fmt: skip
    try:
        producer.finish(within_s=DONE_S_MAX)
        summary = next(rows(producer, "tool_data"))
        assert (summary["sent"], summary["acked"]) == (MESSAGES, MESSAGES)

        def consumed() -> set[str]:
            found = [rows(consumer, "record_data") for consumer in consumers]
            return {row["value"] for each in found for row in each}

        wanted = {str(n) for n in range(MESSAGES)}
        wait_until(lambda: consumed() >= wanted, within_s=DONE_S_MAX, what="all is consumed")
        commits = [row for each in consumers for row in rows(each, "offsets_committed")]
        assert commits
        assert all(row["success"] for row in commits)
    finally:
        for consumer in consumers:
            consumer.kill()


def test_performance_tools_run(bootstrap: str, tmp_path: Path) -> None:
    topic = create_topic(bootstrap, partitions=3)
    count = 20_000
    settings = tmp_path / "producer.properties"
    settings.write_text(f"bootstrap.servers={bootstrap}\nacks=all\ncompression.type=lz4\n")

    produced = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(count),
        "--record-size", "200", "--throughput", "-1", "--producer.config", str(settings),
    ).finish(within_s=DONE_S_MAX)  # fmt: skip
    consumed = tool(
        "ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", topic,
        "--messages", str(count), "--timeout", "30000", "--hide-header",
    ).finish(within_s=DONE_S_MAX)  # fmt: skip

    assert any(line.startswith(f"{count} records sent") for line in produced)
    columns = [line.split(", ") for line in consumed if line.count(", ") >= 9]
    assert int(columns[-1][4]) >= count


def test_the_quorum_is_one_voter(bootstrap: str) -> None:
    status = tool(
        "MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", "--status"
    )
    lines = [line.split() for line in status.finish(within_s=DONE_S_MAX)]
    found = {line[0]: line[1:] for line in lines if line}
    leader = found["LeaderId:"]
    assert found["CurrentObservers:"] == ["[]"]
    assert f'"id":{leader[0]},' in "".join(found["CurrentVoters:"]).replace(" ", "")


def test_a_reassignment_to_where_a_partition_is_is_done(bootstrap: str, tmp_path: Path) -> None:
    topic = create_topic(bootstrap, partitions=2)
    [node_id] = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic).brokers
    parts = [{"topic": topic, "partition": n, "replicas": [node_id]} for n in range(2)]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": parts}))
    place = ["--bootstrap-server", bootstrap, "--reassignment-json-file", str(plan)]
    command = "reassign.ReassignPartitionsCommand"

    begun = tool(command, *place, "--execute", "--throttle", "1000000")
    said = "\n".join(begun.finish(within_s=DONE_S_MAX))
    verified = tool(command, *place, "--verify")
    checked = "\n".join(verified.finish(within_s=DONE_S_MAX))

    assert "Successfully started partition reassignments" in said
    assert f"Reassignment of partition {topic}-1 is completed" in checked


@pytest.mark.parametrize("kills", [0, 2])
def test_transactional_copier_copies_each_message_once(bootstrap: str, kills: int) -> None:
    """Kafka's own: it reads, writes and commits offsets in transactions, and aborts some."""
    source = create_topic(bootstrap, partitions=1)
    target = create_topic(bootstrap, partitions=1)
    seed = Producer({"bootstrap.servers": bootstrap})
    for number in range(COPIED):
        seed.produce(source, str(number))
    seed.flush(60)
    arguments = [
        "--broker-list", bootstrap, "--transactional-id", fresh_name("copier"),
        "--consumer-group", fresh_name("g"), "--input-topic", source, "--input-partition", "0",
        "--output-topic", target, "--max-messages", str(COPIED), "--transaction-size", "100",
        "--enable-random-aborts", "--use-group-metadata",
    ]  # fmt: skip
    for kill in range(kills):
        copier = tool("TransactionalMessageCopier", *arguments)
        wanted = (kill + 1) * COPIED // 4
        wait_until(
            lambda: len(committed(bootstrap, target)) >= wanted,  # noqa: B023 - used at once
            within_s=DONE_S_MAX,
            what=f"{wanted} copies",
        )
        copier.kill()
    # It counts the messages of its own life.
    copier = tool("TransactionalMessageCopier", *arguments)
    try:
        wait_until(
            lambda: len(committed(bootstrap, target)) >= COPIED,
            within_s=DONE_S_MAX,
            what="all is copied",
        )
    finally:
        copier.kill()

    assert committed(bootstrap, target) == [str(number) for number in range(COPIED)]


def committed(bootstrap: str, topic: str) -> list[str]:
    """Return the committed values of a topic's only partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return values
        values.append(message.value().decode())
