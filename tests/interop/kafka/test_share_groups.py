"""Share groups with Apache Kafka's own consumer and tools."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from gateway.testing.process import Program
from tests.interop.kafka.test_java_tools import DONE_S_MAX, tool
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.java]

MESSAGES: Final = 2_000


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0


@contextmanager
def consumers(
    bootstrap: str, topic: str, group: str, count: int, mode: str
) -> Iterator[list[Program]]:
    programs = [
        tool("VerifiableShareConsumer", "--bootstrap-server", bootstrap, "--topic", topic,
             "--group-id", group, "--acknowledgement-mode", mode, "--verbose",
             "--offset-reset-strategy", "earliest")
        for _ in range(count)
    ]  # fmt: skip
    try:
        yield programs
    finally:
        for program in programs:
            program.kill()


def rows(programs: Sequence[Program], name: str) -> list[dict[str, Any]]:
    found = []
    for program in programs:
        for line in list(program.lines):
            if line.startswith("{"):
                row = json.loads(line)
                if row["name"] == name:
                    found.append(row)
    return found


def acknowledged(programs: Sequence[Program]) -> int:
    return sum(
        part["count"]
        for row in rows(programs, "offsets_acknowledged")
        if row["success"]
        for part in row["partitions"]
    )


def received(programs: Sequence[Program]) -> Counter[str]:
    return Counter(row["value"] for row in rows(programs, "record_data"))


def wait(programs: Sequence[Program], condition: Callable[[], bool], what: str) -> None:
    try:
        wait_until(condition, within_s=DONE_S_MAX, what=what)
    except TimeoutError:
        for program in programs:
            print("\n".join(list(program.lines)[-20:]))
        raise


@pytest.mark.parametrize("mode", ["auto", "sync"])
def test_verifiable_consumers_share_one_partition(bootstrap: str, mode: str) -> None:
    topic = create_topic(bootstrap, partitions=1)
    produce(bootstrap, topic, MESSAGES)
    group = fresh_name("share")
    with consumers(bootstrap, topic, group, 2, mode) as programs:
        wait(
            programs,
            lambda: acknowledged(programs) >= MESSAGES,
            "all is acknowledged",
        )
        counts = received(programs)

    assert set(counts) == {str(number) for number in range(MESSAGES)}
    assert max(counts.values()) == 1


def test_records_of_a_killed_consumer_go_to_another(bootstrap: str) -> None:
    topic = create_topic(bootstrap, partitions=1)
    group = fresh_name("share")
    produce(bootstrap, topic, MESSAGES)
    wanted = {str(number) for number in range(MESSAGES)}
    with consumers(bootstrap, topic, group, 1, "auto") as first:
        wait(first, lambda: len(received(first)) > 0, "the first has some")
        first[0].kill()
        with consumers(bootstrap, topic, group, 1, "auto") as second:
            both = [*first, *second]
            wait(both, lambda: set(received(both)) >= wanted, "all is received")


def test_the_tool_for_share_groups_finds_what_it_asks_for(bootstrap: str) -> None:
    topic = create_topic(bootstrap, partitions=1)
    produce(bootstrap, topic, 100)
    group = fresh_name("share")
    named = ("--group", group)
    with consumers(bootstrap, topic, group, 1, "sync") as programs:
        wait(programs, lambda: acknowledged(programs) >= 100, "all is acknowledged")
        members = _command(bootstrap, "--describe", *named, "--members")
        programs[0].stop()
    offsets = _command(bootstrap, "--describe", *named, "--offsets")
    deleted = _command(bootstrap, "--delete-offsets", *named, "--topic", topic)
    gone = _command(bootstrap, "--delete", *named)
    listed = _command(bootstrap, "--list")

    assert any(topic in line for line in members)
    assert _start(offsets, topic) == "100"
    assert any("Successful" in line for line in deleted)
    assert any("successful" in line for line in gone)
    assert group not in "\n".join(listed)


def _start(lines: Sequence[str], topic: str) -> str:
    """Return the start offset in the row of a topic: group, topic, partition, offset."""
    [row] = [line.split() for line in lines if topic in line]
    return row[3]


def _command(bootstrap: str, *arguments: str) -> list[str]:
    command = "consumer.group.ShareGroupCommand"
    return tool(command, "--bootstrap-server", bootstrap, *arguments).finish(
        within_s=DONE_S_MAX
    )
