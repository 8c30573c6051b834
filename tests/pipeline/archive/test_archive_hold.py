"""Retention waits for an archive that a topic names: ``archive.hold``, on a running node."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from gateway.cli.settings import client_of
from gateway.config.loader import load_settings
from tests.pipeline.archive.archives import archive, options, produce
from tests.pipeline.running import Jobs
from tests.support.gateway import Gateway
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

_SETTINGS = {"retention.interval_ms": 100}
_SHORT = {"retention.ms": "1"}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "data", _SETTINGS) as running:
        yield running


def partition(gateway: Gateway, topic: str) -> dict[str, Any]:
    """Return what the node says of a topic's partition 0."""
    settings = load_settings(assignments=[f"node.data_dir={gateway.data_dir}"])
    found: dict[str, Any] = client_of(settings).get("topics", topic)["partitions"][0]
    return found


def start(gateway: Gateway, topic: str) -> int:
    """Return where the log of a topic's partition 0 begins."""
    offset: int = partition(gateway, topic)["log_start_offset"]
    return offset


def wait_start(gateway: Gateway, topic: str, offset: int) -> None:
    wait_until(
        lambda: start(gateway, topic) == offset, within_s=30, what=f"{topic} to begin {offset}"
    )


def retention_passes_by(gateway: Gateway) -> None:
    """Return when retention has looked at everything that was there.

    The second topic is made when a pass has found the first, so the pass that finds it is a
    later one.
    """
    for _ in range(2):
        other = create_topic(gateway.bootstrap, configs=_SHORT)
        produce(gateway, other, range(10))
        wait_start(gateway, other, 10)


def test_records_stay_until_the_named_group_has_committed(gateway: Gateway) -> None:
    topic = create_topic(gateway.bootstrap, configs={**_SHORT, "archive.hold": "copier"})
    produce(gateway, topic, range(100))
    retention_passes_by(gateway)
    assert start(gateway, topic) == 0
    assert partition(gateway, topic)["holders"] == [
        {"name": "archive:copier", "kind": "archive", "offset": 0, "behind": 100}
    ]

    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "copier"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 100)], asynchronous=False)
    wait_start(gateway, topic, 100)

    produce(gateway, topic, range(100, 150))
    consumer.close()
    gateway.kill()
    gateway.restart()
    retention_passes_by(gateway)
    assert start(gateway, topic) == 100, "a start goes on where the group is"


@pytest.mark.java
@pytest.mark.xdist_group("spark")
def test_records_stay_until_they_are_in_the_table(
    jobs: Jobs, gateway: Gateway, tmp_path: Path
) -> None:
    configs = {**_SHORT, "archive.hold": "archive.lake"}
    topic = create_topic(gateway.bootstrap, configs=configs)
    to = tmp_path / "lake"
    produce(gateway, topic, range(3_000))
    gateway.stop()  # all of it is synced then

    more = ("--id", "lake", "--hold", f"--set=admin.bind=127.0.0.1:{gateway.admin_port}")
    alone = jobs.run("archive", *options(gateway.data_dir, topic, to, *more))
    assert alone.status == 0, alone.err
    assert "archived 3,000 rows" in alone.out
    (line,) = alone.err.splitlines()
    assert re.search("the hold of archive.lake stays where it was: no node answers", line)
    gateway.restart()
    retention_passes_by(gateway)
    assert start(gateway, topic) == 0, "the node was not told"

    again = archive(jobs, gateway.data_dir, topic, to, "--id", "lake", "--hold")
    assert again["rows"] == 0
    wait_start(gateway, topic, 3_000)

    produce(gateway, topic, range(3_000, 4_000))
    gateway.stop()
    gateway.restart()
    retention_passes_by(gateway)
    assert start(gateway, topic) == 3_000
    assert archive(jobs, gateway.data_dir, topic, to, "--id", "lake", "--hold")["rows"] == 1_000
    wait_start(gateway, topic, 4_000)
