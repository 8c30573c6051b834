"""Sessions follow changed permissions, and serve many partitions in slices."""

from pathlib import Path
from typing import cast

from adapters.kafka.errors import ErrorCode
from adapters.kafka.node.large_requests import SLICE_ELEMENTS
from gateway.auth.ports import Operation, PatternKind, ResourceType, Rule
from gateway.auth.rules import RuleBook
from tests.adapters.kafka.fetch_sessions.test_sessions import (
    NEVER_MS,
    A,
    B,
    Consumer,
    append,
    partition_of,
)
from tests.adapters.kafka.running_adapter import Live, running
from tests.support.fetch_sessions import FULL, Answer
from tests.support.kafka_wire import FETCH
from tests.support.waiting import until

DENY = Rule("*", Operation.READ, ResourceType.TOPIC, PatternKind.LITERAL, "orders", allow=False)
WRITE = DENY._replace(operation=Operation.WRITE, allow=True)
MANY = 2 * SLICE_ELEMENTS + 500


def book_of(live: Live) -> RuleBook:
    return cast("RuleBook", live.kernel.authorizer)


async def test_an_idle_session_is_authorized_again_when_rules_change(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        consumer = Consumer(live, await live.client())
        session = await consumer.open(A, B)
        await book_of(live).add_rules([DENY])
        denied = await consumer.fetch(session, 1, wait_ms=NEVER_MS)
        await book_of(live).delete_rules([DENY])
        allowed = await consumer.fetch(session, 2)
        quiet = await consumer.fetch(session, 3)
    codes = [part.error_code for part in denied.partitions.values()]
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    assert [part.error_code for part in allowed.partitions.values()] == [0, 0]
    assert quiet == Answer(0, session, {})


async def test_a_wait_that_began_before_the_rules_changed_sends_no_batch(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        consumer = Consumer(live, await live.client())
        session = await consumer.open(A, B)
        consumer.send(session, 1, wait_ms=NEVER_MS)
        await until(lambda: live.adapter.requests[FETCH] == 2)
        await book_of(live).add_rules([DENY, WRITE])
        await append(live)
        answer = await consumer.answer()
    assert list(answer.partitions) == [A]
    assert answer.partitions[A].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not answer.partitions[A].records


async def test_a_large_session_is_made_read_and_ended(tmp_path: Path) -> None:
    async with running(tmp_path, partitions=MANY) as live:
        consumer = Consumer(live, await live.client())
        keys = [("orders", number) for number in range(MANY)]
        session = await consumer.open(*keys)
        idle = await consumer.fetch(session, 1)
        for number in range(MANY):
            partition = partition_of(live, number)
            for waiter in tuple(partition.waiters):
                waiter.on_truncated()  # all are looked at again
        consumer.send(session, 2, wait_ms=NEVER_MS)
        await until(lambda: live.adapter.requests[FETCH] == 3)
        await append(live, MANY - 1)
        woken = await consumer.answer()
        ended = await consumer.fetch(session, 3, forgotten=keys)
        assert not partition_of(live, 0).waiters
    assert idle == Answer(0, session, {})
    assert list(woken.partitions) == [keys[-1]]
    assert ended == Answer(0, 0, {})


async def test_a_large_session_of_a_topic_that_goes_is_looked_up_in_slices(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, partitions=MANY) as live:
        consumer = Consumer(live, await live.client())
        keys = [("orders", number) for number in range(MANY)]
        session = await consumer.open(*keys)
        await book_of(live).add_rules([DENY])
        denied = await consumer.fetch(session, 1)
        await book_of(live).delete_rules([DENY])
        allowed = await consumer.fetch(session, 2)
        full = await consumer.fetch(session, FULL, {A: 0})
        await until(lambda: not partition_of(live, 1).waiters)
    assert {part.error_code for part in denied.partitions.values()} == {29}
    assert [part.error_code for part in allowed.partitions.values()] == [0] * MANY
    assert list(full.partitions) == [A]
