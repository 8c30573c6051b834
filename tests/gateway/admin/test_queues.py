"""Queues and dead letters over the admin endpoint, in front of a real kernel."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from features.queue.model import Order
from gateway.cli.admin_client import Refused
from gateway.model import TopicName
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome, QueueSettings
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from tests.gateway.admin.kernel_with_admin import Setup, running_admin
from tests.gateway.queues.clients import DEADLINE_S, found, kept, send, settle, take


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    async with running_admin(tmp_path) as found:
        yield found


async def ask(setup: Setup, method: str, *path: str, **options: Any) -> Any:
    """Send a request beside the loop that answers it."""
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.to_thread(partial(setup.client.send, method, *path, **options))


async def made(setup: Setup, name: str, partitions: int = 1, **settings: Any) -> Queue:
    body = {"name": name, "partitions": partitions, "settings": settings}
    await ask(setup, "POST", "queues", body=body)
    return found(setup.kernel, name)


async def until(setup: Setup, *path: str, holds: Callable[[Any], bool]) -> Any:
    """Ask until the answer is as it should become."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await ask(setup, "GET", *path)
            if holds(answer):
                return answer


async def with_dead_letters(setup: Setup, *reasons: str) -> tuple[Queue, Queue]:
    """Return a queue and its dead-letter queue, which holds a message for each reason."""
    dead = await made(setup, "dead")
    work = await made(setup, "work", dead_letter_topic="dead")
    for reason in reasons:
        await send(setup.kernel, work, f"for {reason}".encode(), key=b"k1")
        [delivery] = await take(work, 1)
        await settle(work, [delivery.delivery_id], Outcome.REJECT, reason)
    return work, dead


async def test_the_way_of_a_queue(setup: Setup) -> None:
    shown = await ask(
        setup,
        "POST",
        "queues",
        body={
            "name": "work",
            "partitions": 2,
            "settings": {"lease_ms": "5000", "order": "fair", "delay_ms": None},
            "tags": {"team": "billing"},
        },
    )
    assert (shown["name"], shown["group"], shown["partitions"]) == ("work", "@queue", 2)
    assert (shown["owns_topic"], shown["tags"]) == (True, {"team": "billing"})
    assert (shown["settings"]["lease_ms"], shown["settings"]["order"]) == (5_000, "fair")
    topic = setup.kernel.topics.get(TopicName("default", "work"))
    assert topic.configs["cleanup.policy"] == "queue"

    changes = {"settings": {"lease_ms": None, "attempts_max": 3}}
    changed = await ask(setup, "PATCH", "queues", "work", body=changes)
    assert changed["settings"]["lease_ms"] == 30_000
    assert (changed["settings"]["attempts_max"], changed["settings"]["order"]) == (3, "fair")

    [listed] = (await ask(setup, "GET", "queues"))["queues"]
    assert (listed["name"], listed["settings"]["attempts_max"]) == ("work", 3)
    await ask(setup, "DELETE", "queues", "work")
    assert (await ask(setup, "GET", "queues"))["queues"] == []
    assert setup.kernel.topics.find(TopicName("default", "work")) is None


async def test_messages_are_counted_by_state_with_the_age_of_the_oldest(setup: Setup) -> None:
    queue = await made(setup, "work")
    assert (await ask(setup, "GET", "queues", "work"))["oldest_age_ms"] is None
    await send(setup.kernel, queue, b"1", b"2", b"3")
    await take(queue, 1)
    later_unix_ms = setup.kernel.clock.unix_ms() + 3_600_000
    run = RecordRun(None, (b"later",), NO_HEADERS, 1)
    run.deliver_at_unix_ms = later_unix_ms
    add, partition = setup.kernel.queues.coalescer.add, queue.partition_for(None)
    await kept(lambda on_done: add(partition, run, on_done))

    shown = await ask(setup, "GET", "queues", "work")

    assert shown["counts"] == {"ready": 2, "in_flight": 1, "delayed": 1}
    assert 60_000 <= shown["oldest_age_ms"] < 120_000


async def test_purge_takes_all_also_what_waits_for_its_time(setup: Setup) -> None:
    queue = await made(setup, "work")
    await send(setup.kernel, queue, b"1", b"2")
    await take(queue, 1)
    later_unix_ms = setup.kernel.clock.unix_ms() + 3_600_000
    run = RecordRun(None, (b"later",), NO_HEADERS, 1)
    run.deliver_at_unix_ms = later_unix_ms
    add, partition = setup.kernel.queues.coalescer.add, queue.partition_for(None)
    await kept(lambda on_done: add(partition, run, on_done))

    await ask(setup, "POST", "queues", "work", "purge")

    shown = await ask(setup, "GET", "queues", "work")
    assert shown["counts"] == {"ready": 0, "in_flight": 0, "delayed": 0}


async def test_a_second_queue_on_a_topic_leaves_it_and_what_waits(setup: Setup) -> None:
    queue = await made(setup, "work")
    run = RecordRun(None, (b"later",), NO_HEADERS, 1)
    later_unix_ms = setup.kernel.clock.unix_ms() + 3_600_000
    run.deliver_at_unix_ms = later_unix_ms
    add, partition = setup.kernel.queues.coalescer.add, queue.partition_for(None)
    await kept(lambda on_done: add(partition, run, on_done))
    await send(setup.kernel, queue, b"1")
    audit = {"name": "work", "group": "audit", "from_start": True}
    second = await ask(setup, "POST", "queues", body=audit)
    assert (second["owns_topic"], second["group"]) == (False, "audit")
    of_audit = {"group": "audit"}

    counted = await ask(setup, "GET", "queues", "work", query=of_audit)
    assert counted["counts"] == {"ready": 1, "in_flight": 0, "delayed": 1}
    await ask(setup, "POST", "queues", "work", "purge", query=of_audit)
    await ask(setup, "DELETE", "queues", "work", query=of_audit)

    shown = await ask(setup, "GET", "queues", "work")
    assert shown["counts"] == {"ready": 1, "in_flight": 0, "delayed": 1}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "a/b"}, "InvalidTopicName"),
        (
            {"name": "q", "settings": {"lease": 1}},
            "'lease' is no setting; there are: order, priority_max, lease_ms",
        ),
        ({"name": "q", "settings": {"lease_ms": -1}}, "lease_ms: "),
        ({"name": "q", "settings": {"order": "any"}}, "order: "),
        ({"name": "q", "settings": {"dead_letter_topic": "none"}}, "no topic 'none'"),
        ({"name": "q", "settings": {"dead_letter_topic": "__queues"}}, "is internal"),
        ({"name": "q.fifo"}, "has the order key"),
        ({"name": "q", "partitions": 0}, "partitions: "),
        ({"name": "__queues"}, "PolicyViolation"),
        ({"name": "there"}, "QueueExists"),
    ],
)
async def test_what_cannot_be_a_queue_is_refused_and_leaves_nothing(
    setup: Setup, body: dict[str, Any], words: str
) -> None:
    await made(setup, "there")

    with pytest.raises(Refused, match=words):
        await ask(setup, "POST", "queues", body=body)

    assert [topic.name.name for topic in setup.kernel.topics.topics()] == ["there"]
    assert len(setup.kernel.queues.of_clients()) == 1


async def test_a_queue_that_is_not_there_is_said_to_be(setup: Setup) -> None:
    await made(setup, "work")
    for method, *path in (("GET",), ("DELETE",), ("POST", "purge"), ("PATCH",)):
        with pytest.raises(Refused, match="QueueNotFound: no queue 'none'"):
            await ask(setup, method, "queues", "none", *path, body={"settings": {}})
    with pytest.raises(Refused, match=r"QueueNotFound: .*of group 'audit'"):
        await ask(setup, "GET", "queues", "work", query={"group": "audit"})


async def test_a_change_that_makes_no_sense_is_refused(setup: Setup) -> None:
    queue = await made(setup, "work.fifo", order="key")
    own, unordered = {"dead_letter_topic": "work.fifo"}, {"order": "none"}
    for settings, words in ((own, "the queue's own"), (unordered, "has the order key")):
        with pytest.raises(Refused, match=words):
            await ask(setup, "PATCH", "queues", "work.fifo", body={"settings": settings})
    assert queue.settings == QueueSettings(order=Order.KEY)


async def test_dead_letters_are_listed_and_shown_with_what_was_said_of_them(
    setup: Setup,
) -> None:
    await with_dead_letters(setup, "too old", "rejected")

    [listed] = (await ask(setup, "GET", "dlq"))["dlqs"]
    shown = await ask(setup, "GET", "dlq", "dead", "messages")

    assert (listed["name"], listed["sources"], listed["counts"]["ready"]) == (
        "dead",
        ["work"],
        2,
    )
    assert shown["total"] == 2
    first, second = shown["messages"]
    assert (first["key"], first["value"], first["state"]) == ("k1", "for too old", "ready")
    assert second["dlq"]["reason"] == "rejected"
    said = first["dlq"]
    assert (said["reason"], said["source.topic"], said["source.offset"]) == (
        "too old",
        "work",
        "0",
    )
    assert (said["attempts"], said["group"], said["hops"]) == ("1", "@queue", "1")
    assert (await ask(setup, "GET", "queues", "dead"))["dead_letter_sources"] == ["work"]


async def test_looking_at_dead_letters_takes_none(setup: Setup) -> None:
    _, dead = await with_dead_letters(setup, "rejected")
    for count in ("1", "1000"):
        await ask(setup, "GET", "dlq", "dead", "messages", query={"count": count})
    assert dead.counts().in_flight == 0
    for count in ("0", "1001", "many", "\u0661"):
        with pytest.raises(Refused, match="count"):
            await ask(setup, "GET", "dlq", "dead", "messages", query={"count": count})


async def test_redrive_brings_dead_letters_back(setup: Setup) -> None:
    work, dead = await with_dead_letters(setup, "rejected", "rejected")

    begun = await ask(setup, "POST", "dlq", "dead", "redrives", body={})
    assert (begun["total_at_start"], begun["destination"]) == (2, None)

    def has_ended(answer: Any) -> bool:
        return bool(answer["redrives"][0]["status"] == "COMPLETED")

    [ended] = (await until(setup, "dlq", "dead", "redrives", holds=has_ended))["redrives"]
    assert (ended["handle"], ended["moved"], ended["failure"]) == (begun["handle"], 2, "")
    assert dead.counts() == (0, 0, 0)
    assert sorted(one.record.value or b"" for one in await take(work, 2)) == [
        b"for rejected",
        b"for rejected",
    ]
    with pytest.raises(Refused, match="no redrive of dead is running"):
        await ask(setup, "POST", "dlq", "dead", "redrives", "cancel")


async def test_a_slow_redrive_can_be_cancelled(setup: Setup) -> None:
    _, dead = await with_dead_letters(setup, *["rejected"] * 5)
    elsewhere = await made(setup, "elsewhere")
    body = {"destination": "elsewhere", "rate_per_s": 1}
    await ask(setup, "POST", "dlq", "dead", "redrives", body=body)
    with pytest.raises(Refused, match="runs already"):
        await ask(setup, "POST", "dlq", "dead", "redrives", body=body)

    await ask(setup, "POST", "dlq", "dead", "redrives", "cancel")

    def has_ended(answer: Any) -> bool:
        return bool(answer["redrives"][0]["status"] == "CANCELLED")

    [ended] = (await until(setup, "dlq", "dead", "redrives", holds=has_ended))["redrives"]
    assert (ended["destination"], ended["rate_per_s"]) == ("elsewhere", 1)
    assert ended["moved"] < 5
    assert sum(dead.counts()) + sum(elsewhere.counts()) == 5


async def test_a_redrive_to_nowhere_is_refused(setup: Setup) -> None:
    await with_dead_letters(setup, "rejected")
    with pytest.raises(Refused, match="TopicNotFound"):
        await ask(setup, "POST", "dlq", "dead", "redrives", body={"destination": "none"})
    with pytest.raises(Refused, match="are there already"):
        await ask(setup, "POST", "dlq", "dead", "redrives", body={"destination": "dead"})
    with pytest.raises(Refused, match="own topic"):
        await ask(setup, "POST", "dlq", "dead", "redrives", body={"destination": "__queues"})
    with pytest.raises(Refused, match="rate_per_s"):
        await ask(setup, "POST", "dlq", "dead", "redrives", body={"rate_per_s": 0})


async def test_dead_letters_can_be_purged(setup: Setup) -> None:
    _, dead = await with_dead_letters(setup, "rejected")
    await ask(setup, "POST", "dlq", "dead", "purge")
    assert dead.counts() == (0, 0, 0)


async def test_bytes_that_are_no_text_are_shown_in_base64(setup: Setup) -> None:
    dead = await made(setup, "dead")
    await send(setup.kernel, dead, b"\xff\xfe", key=b"\x80")
    [shown] = (await ask(setup, "GET", "dlq", "dead", "messages"))["messages"]
    assert (shown["value_base64"], shown["key_base64"]) == ("//4=", "gA==")
    assert "value" not in shown
