"""Requests of kcat beside producing and consuming: metadata and offsets by time."""

import json
import subprocess

import pytest

from tests.interop.kafka.clients import CONFLUENT
from tests.interop.kafka.programs.protocol import Message
from tests.support.topics import create_topic, fresh_name

pytestmark = [pytest.mark.interop, pytest.mark.kcat]


def kcat(*arguments: str) -> str:
    done = subprocess.run(
        ["kcat", *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_metadata_lists_brokers_and_topics(bootstrap: str) -> None:
    topic = create_topic(bootstrap, partitions=3)

    found = json.loads(kcat("-L", "-J", "-b", bootstrap))

    assert bootstrap in [broker["name"] for broker in found["brokers"]]
    described = next(row for row in found["topics"] if row["topic"] == topic)
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]


def test_offsets_by_time_are_answered(bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    for number in range(3):
        record = Message(b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000 + number)
        CONFLUENT.produce(bootstrap, topic, [record])

    asked = ["1700000000001", "1800000000000"]
    found = [
        kcat("-Q", "-b", bootstrap, "-t", f"{topic}:0:{time}").split()[-1] for time in asked
    ]

    assert found == ["1", "-1"]


def test_producing_creates_the_topic(bootstrap: str) -> None:
    topic = fresh_name()

    subprocess.run(
        ["kcat", "-P", "-b", bootstrap, "-t", topic, "-T"],
        input=b"hello\n", stdout=subprocess.DEVNULL, timeout=60, check=True,
    )  # fmt: skip

    assert kcat("-C", "-e", "-q", "-b", bootstrap, "-t", topic, "-o", "0") == "hello\n"
