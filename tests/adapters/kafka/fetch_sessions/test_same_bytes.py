"""A session and full fetches deliver the same bytes, whatever a client and the log do."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.model import TopicName
from tests.adapters.kafka.fetch_sessions.test_sessions import Consumer, append, partition_of
from tests.adapters.kafka.running_adapter import Live, running
from tests.support.examples import examples
from tests.support.fetch_sessions import FINAL, FULL, Answer, Fetched

ORDERS = TopicName("default", "orders")
PARTITIONS = 3
numbers = st.integers(0, PARTITIONS - 1)
offsets = st.integers(0, 5)
ACTIONS = st.one_of(
    st.tuples(st.just("append"), numbers, st.integers(0, 600)),
    st.tuples(st.just("seek"), numbers, offsets),
    st.tuples(st.just("forget"), numbers, offsets),
    st.tuples(st.just("truncate"), numbers, offsets),
    st.tuples(st.just("delete"), numbers, offsets),
)
POLLS = st.tuples(st.just("poll"), st.sampled_from([1, 400, 1 << 20]), st.booleans())


class Pair:
    """A client with a session, and what it must know by full fetches of the same offsets."""

    def __init__(self, live: Live, consumer: Consumer) -> None:
        self.live = live
        self.consumer = consumer
        self.session = 0
        self.epoch = FULL
        self.at: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.changed: dict[int, int] = dict(self.at)
        self.forgotten: set[int] = set()
        self.known: dict[int, Fetched] = {}

    async def do(self, action: tuple[str, Any, Any]) -> None:
        kind, first, second = action
        if kind == "poll":
            await self.poll(bytes_max=first, reads_on=second)
        elif kind == "read_on":  # to the end of every partition
            for reads_on in (True, False):
                await self.poll(bytes_max=1 << 20, reads_on=reads_on)
        else:
            await getattr(self, kind)(first, second)

    async def append(self, number: int, size: int) -> None:
        await append(self.live, number, bytes(size))

    async def seek(self, number: int, offset: int) -> None:
        self.at[number] = self.changed[number] = offset
        self.forgotten.discard(number)

    async def forget(self, number: int, _offset: int) -> None:
        if self.at.pop(number, None) is not None:
            self.changed.pop(number, None)
            self.forgotten.add(number)

    async def truncate(self, number: int, offset: int) -> None:
        partition = partition_of(self.live, number)
        end = min(offset, partition.high_watermark)
        self.live.kernel.broker.truncate_before(partition, end, lambda _error: None)

    async def delete(self, _number: int, _offset: int) -> None:
        await self.live.kernel.topics.delete(ORDERS)
        await self.live.kernel.topics.create(ORDERS, partitions=PARTITIONS)

    async def poll(self, *, bytes_max: int, reads_on: bool) -> None:
        """Fetch by the session; what it does not mention is as the client knows it."""
        answer = await self.consumer.fetch(
            self.session,
            self.epoch,
            {("orders", number): offset for number, offset in self.changed.items()},
            forgotten=[("orders", number) for number in sorted(self.forgotten)],
            bytes_max=bytes_max,
        )
        assert answer.error_code == 0
        self.session, self.epoch = answer.session_id, self.epoch + 1 if answer.session_id else 0
        for number in self.forgotten:
            self.known.pop(number, None)
        self.changed, self.forgotten = {}, set()
        if not answer.session_id:
            self.changed = dict(self.at)
        found = {number: part for (_, number), part in answer.partitions.items()}
        self.known.update(found)
        whole = await self.full()
        self.check(found, whole, is_limited=bytes_max < 1 << 20)
        for number, part in found.items() if reads_on else ():
            if part.records:
                await self.seek(number, whole[number].high_watermark)

    def check(
        self, found: dict[int, Fetched], whole: dict[int, Fetched], *, is_limited: bool
    ) -> None:
        assert self.known.keys() == whole.keys()
        for number, right in whole.items():
            seen = self.known[number]
            assert seen[1:3] == right[1:3]
            if not is_limited:  # else the partition may not have been read
                assert seen.error_code == right.error_code
            if number in found and seen.records:
                assert right.records.startswith(seen.records)
            elif not is_limited:
                assert not right.records
        if any(part.records for part in whole.values()):
            assert any(part.records for part in found.values())

    async def full(self) -> dict[int, Fetched]:
        wanted = {("orders", number): offset for number, offset in self.at.items()}
        answer: Answer = await self.consumer.fetch(0, FINAL, wanted)
        return {number: part for (_, number), part in answer.partitions.items()}


@settings(max_examples=examples(40), deadline=None)
@example([("append", 0, 9), ("read_on", 0, 0), ("truncate", 0, 1)])
@example([("read_on", 0, 0), ("forget", 2, 0), ("seek", 2, 0)])
@example([("read_on", 0, 0), ("delete", 0, 0), ("append", 1, 9)])
@given(st.lists(ACTIONS | POLLS | st.just(("read_on", 0, 0)), min_size=3, max_size=40))
async def test_sessions_and_full_fetches_deliver_the_same(
    actions: list[tuple[str, Any, Any]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder), partitions=PARTITIONS) as live:
            pair = Pair(live, Consumer(live, await live.client()))
            for action in actions:
                await pair.do(action)
            await pair.poll(bytes_max=1 << 20, reads_on=True)
            await pair.poll(bytes_max=1 << 20, reads_on=False)
