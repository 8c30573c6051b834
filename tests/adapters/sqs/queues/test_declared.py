"""Queues of the config exist from the start, as created by CreateQueue."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config.base import InvalidSettings
from gateway.config.loader import load_settings
from tests.adapters.sqs.handlers.serving import Live, running

DEAD = "arn:aws:sqs:us-east-1:000000000000:dead"
WORK = {
    "name": "work",
    "tags": {"team": "a"},
    "MaximumMessageSize": 2_048,
    "ReceiveMessageWaitTimeSeconds": 5,
    "VisibilityTimeout": 45,
    "RedrivePolicy": {"deadLetterTargetArn": DEAD, "maxReceiveCount": 3},
}
DEAD_QUEUE = {"name": "dead", "RedriveAllowPolicy": {"redrivePermission": "allowAll"}}
FIFO = {"name": "jobs.fifo", "ContentBasedDeduplication": True}


async def made(live: Live, name: str, **attributes: str) -> None:
    """Make a queue by a request, of which an equal one is there already."""
    await live.queue(name, **attributes)


async def test_a_declared_queue_is_what_create_queue_makes(tmp_path: Path) -> None:
    async with running(tmp_path / "a", sqs={"queues": [WORK, DEAD_QUEUE, FIFO]}) as live:
        declared = {}
        for name in ("work", "dead", "jobs.fifo"):
            found = await live.attributes(f"{live.url}/000000000000/{name}")
            declared[name] = found, live.kept(name).settings, live.kept(name).tags
        policy = declared["work"][0]["RedrivePolicy"]
        size = {"MaximumMessageSize": "2048", "RedrivePolicy": policy}
        await made(live, "work", ReceiveMessageWaitTimeSeconds="5", **size)
        await made(live, "jobs.fifo", ContentBasedDeduplication="true")
        assert len(live.kernel.queues.of_clients()) == 3

    async with running(tmp_path / "b") as live:
        await made(live, "dead", RedriveAllowPolicy='{"redrivePermission":"allowAll"}')
        wait = {"ReceiveMessageWaitTimeSeconds": "5", "VisibilityTimeout": "45"}
        await made(live, "work", **size, **wait)
        await made(live, "jobs.fifo", ContentBasedDeduplication="true")
        times = ("CreatedTimestamp", "LastModifiedTimestamp")
        for name, (attributes, settings, _) in declared.items():
            found = await live.attributes(f"{live.url}/000000000000/{name}")
            for key in attributes.keys() - set(times) - {"RedriveAllowPolicy"}:
                assert found[key] == attributes[key], (name, key)
            assert live.kept(name).settings == settings
    assert declared["work"][2] == {"team": "a"}


async def test_a_queue_that_is_there_keeps_what_it_was_given(tmp_path: Path) -> None:
    for timeout, expected in ((45, 45_000), (60, 45_000)):
        queue = {"name": "work", "VisibilityTimeout": timeout}
        async with running(tmp_path, sqs={"queues": [queue]}) as live:
            assert live.kept("work").settings.lease_ms == expected


async def test_a_dead_letter_queue_that_is_nowhere_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"^adapters\.sqs\.queues\.work: "):
        async with running(tmp_path, sqs={"queues": [WORK]}):
            pass


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        ('name = "a", MaximumMessageSiz = 1024', r"\.MaximumMessageSize\?"),
        ('name = "a", MaximumMessageSize = 1', r"queues\[0\]\.MaximumMessageSize: "),
        ('name = "a", ContentBasedDeduplication = true', "only with FIFO Queues"),
        ('name = "a/b"', "can only include"),
        ('name = "a", Policy = { Statement = [] }', "It has no Statement"),
        ('name = "a", RedrivePolicy = { maxReceiveCount = 3 }', "RedrivePolicy"),
        ('name = "a", tags = { "aws:x" = "" }', "tag keys cannot start with aws:"),
    ],
)
def test_what_create_queue_would_refuse_is_a_fault_of_the_config(
    tmp_path: Path, queue: str, words: str
) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(f"[adapters.sqs]\nqueues = [{{{queue}}}]\n")

    with pytest.raises(InvalidSettings, match=words):
        load_settings(file=file)


def test_defaults_are_left_to_create_queue(tmp_path: Path) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text('[[adapters.sqs.queues]]\nname = "a"\n')

    sqs: Any = load_settings(file=file).adapters["sqs"]

    assert sqs.queues[0].given() == {}
