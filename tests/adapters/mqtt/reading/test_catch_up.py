"""A follower that is behind gets all that it wants, once and in order, beside any others."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mqtt.delivery.ended_index import EndedIndex
from adapters.mqtt.mapping import mixed_runs_of_batch
from adapters.mqtt.ports import SubscriberMatch
from adapters.mqtt.reading import catch_up as catch_up_module
from adapters.mqtt.reading import key_lookup as wanted_spans_module
from adapters.mqtt.reading.catch_up import CatchUp
from adapters.mqtt.reading.feed import Feed
from adapters.mqtt.reading.pacing import Pace
from adapters.mqtt.records.mixed_topic_batch import MixedTopicBatch
from adapters.mqtt.route_config import RouteConfig
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.subscriptions.ended import EndedSubscriptions
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.subscriptions.trie import Match, SubscriptionTrie
from adapters.mqtt.wire import PublishRun
from gateway.errors import OffsetOutOfRange
from gateway.model import Buffer
from gateway.records.codec import NO_HEADERS, encode_runs
from gateway.records.keys import keys_of_batch
from gateway.records.record_run import RecordRun
from gateway.storage import KeySpans, WantedKeys
from tests.support.examples import examples
from tests.support.waiting import until

PARTITION = 7
ROUTE = RouteConfig(filter="#", topic="t")
DEADLINE_S = 60.0


class LogFeed:
    """A feed over batches in memory, each read as what the disk would give."""

    partition_id = PARTITION

    def __init__(self, batches: Sequence[bytes], live_offset: int, *, per_read: int) -> None:
        self._batches = batches
        self._per_read = per_read
        self._skipped: Counter[str] = Counter()
        self.live_offset = live_offset
        self.slow_receivers = SimpleNamespace(members={})  # nobody is too slow for QoS 0
        self.log_start_offset = 0
        self.file_batches = 0  # of each file that has an index of keys; 0: there is none
        self.asked: list[tuple[int, int]] = []
        self.reads: list[int] = []
        self.on_read: Callable[[], None] = lambda: None

    async def read_batches(self, offset: int, *, bytes_max: int, end: int) -> Sequence[Buffer]:
        assert 0 < bytes_max <= catch_up_module.READ_BYTES_MAX
        if offset < self.log_start_offset:
            raise OffsetOutOfRange(f"offset {offset}")
        self.reads.append(offset)
        self.on_read()
        await asyncio.sleep(0)
        ends = [_end_of(batch) for batch in self._batches]
        first = next(at for at, one in enumerate(ends) if offset < one)
        found = self._batches[first : first + self._per_read]
        return [batch for batch in found if int.from_bytes(batch[:8]) < end]

    async def runs_of_large(self, _batch: Buffer) -> None:
        """None is large."""

    def take_away(self, offset: int) -> None:
        """Leave out a batch, as compaction does."""
        self._batches = [
            batch for batch in self._batches if int.from_bytes(batch[:8]) != offset
        ]

    @property
    def has_key_spans(self) -> bool:
        return self.file_batches > 0

    async def spans_with_keys(self, keys: WantedKeys, start: int, end: int) -> KeySpans:
        """As a storage with one index a file does."""
        self.asked.append((start, end))
        self.on_read()
        await asyncio.sleep(0)
        ends = [_end_of(batch) for batch in self._batches]
        first = next(at for at, one in enumerate(ends) if start < one)
        last = first - first % self.file_batches + self.file_batches
        spans = [
            (max(int.from_bytes(batch[:8]), start), min(_end_of(batch), end))
            for batch in self._batches[first:last]
            if any(
                key in keys.exact or (key.startswith(keys.prefixes) and keys.wants(key))
                for key in keys_of_batch(batch)
            )
        ]
        upto = min(ends[min(last, len(ends)) - 1], end)
        return KeySpans([span for span in spans if span[0] < span[1]], upto)

    def runs_of(
        self, batch: Buffer, wants: Callable[[bytes], bool] | None
    ) -> list[PublishRun | MixedTopicBatch]:
        return mixed_runs_of_batch(
            batch, ROUTE, from_offset=0, skipped=self._skipped, wants=wants
        )


def _end_of(batch: Buffer) -> int:
    return int.from_bytes(batch[:8]) + int.from_bytes(batch[23:27]) + 1


class Follower:
    """A session with a window, whose client acknowledges all a few turns of the loop later."""

    is_group = False
    ended: EndedSubscriptions[Any] | None = None
    wanted_filters = ClientSession.wanted_filters

    def __init__(self, offset: int, filters: Sequence[str], window: int) -> None:
        self.behind = {PARTITION: offset}
        self.subscriptions = {one: Subscription(one, qos=1) for one in filters}
        self.got: list[tuple[int, bytes, bytes]] = []
        self.skipped = 0
        self.window = window
        self._room = window
        self.acknowledges = True
        self.catch_up: CatchUp | None = None
        self.takes_mixed_topics = True

    @property
    def is_ready(self) -> bool:
        return self._room > 0

    def on_skipped(self, count: int) -> None:
        self.skipped += count

    def take(
        self, run: PublishRun, start: int, stop: int, match: SubscriberMatch, feed: Feed
    ) -> int:
        assert match.subscriber is cast("ClientSession", self)
        assert feed.partition_id == PARTITION
        count = min(stop - start, self._room)
        self._room -= count
        self.got += [
            (run.base_offset + at, run.topic, run.payloads[at])
            for at in range(start, start + count)
        ]
        if not self._room and self.acknowledges:
            asyncio.get_running_loop().call_soon(self.acknowledge)
        return count

    def take_mixed_topics(
        self,
        mixed: MixedTopicBatch,
        places: range,
        matches: Mapping[PublishRun, SubscriberMatch],
        feed: Feed,
    ) -> int | None:
        """Take wanted messages run by run, as a session takes them together."""
        if not self.takes_mixed_topics:
            return None
        for run in mixed.runs(places):
            at = run.base_offset - mixed.base_offset
            match = matches.get(mixed.kinds[at])
            if match is not None and not self.take(run, 0, 1, match, feed):
                return at
        return places.stop

    def acknowledge(self) -> None:
        self._room = self.window
        if self.behind:
            self.go_on()

    def go_on(self) -> None:
        assert self.catch_up is not None
        self.catch_up.add(cast("ClientSession", self))


class Matches:
    """The trie of all, as the distributor asks it."""

    def __init__(self) -> None:
        self.trie: SubscriptionTrie[Any] = SubscriptionTrie()
        self.ended = EndedIndex()

    def matches_by_follower(self, topic: bytes) -> dict[Any, Match[Any]]:
        return {match.subscriber: match for match in self.trie.match(topic).matches}


class Case(NamedTuple):
    """Records that the log holds, by topic and payload, in batches of some sizes."""

    records: list[tuple[bytes, bytes]]
    batches: list[bytes]


def make_case(stretches: Sequence[tuple[bytes, int]], batch_records: int) -> Case:
    records = [(topic, b"%d" % n) for topic, count in stretches for n in range(count)]
    batches = []
    for start in range(0, len(records), batch_records):
        runs = [
            RecordRun(topic, [payload], NO_HEADERS, 0)
            for topic, payload in records[start : start + batch_records]
        ]
        batches.append(bytes(encode_runs(runs, base_offset=start)))
    return Case(records, batches)


class Scene:
    """Followers of a log, served until all are live."""

    def __init__(self, case: Case, *, per_read: int = 2, slice_s: float = 10.0) -> None:
        self.feed = LogFeed(case.batches, len(case.records), per_read=per_read)
        self.matches = Matches()
        self.followers: list[Follower] = []
        self.catch_up = CatchUp(cast("Feed", self.feed), self.matches, Pace(slice_s=slice_s))

    def follower(self, offset: int, filters: Sequence[str], window: int = 10_000) -> Follower:
        follower = Follower(offset, filters, window)
        follower.catch_up = self.catch_up
        for subscription in follower.subscriptions.values():
            self.matches.trie.add(subscription, follower)
        self.followers.append(follower)
        return follower

    async def until_live(self) -> None:
        await until(lambda: not any(follower.behind for follower in self.followers))


TOPICS = [b"a", b"a/b", b"b", b"c"]
FILTERS = st.lists(
    st.sampled_from(["a", "b", "a/#", "+", "#", "+/b", "z"]), max_size=2, unique=True
)


def wanted_of(case: Case, follower: Follower, offset: int) -> list[tuple[int, bytes, bytes]]:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    for subscription in follower.subscriptions.values():
        trie.add(subscription, 1)
    return [
        (at, topic, payload)
        for at, (topic, payload) in enumerate(case.records)
        if at >= offset and trie.match(topic).matches
    ]


@settings(max_examples=examples(150), deadline=None)
@given(
    stretches=st.lists(
        st.tuples(st.sampled_from(TOPICS), st.integers(1, 12)), min_size=1, max_size=12
    ),
    batch_records=st.integers(1, 30),
    per_read=st.integers(1, 4),
    slice_s=st.sampled_from([0.0, 10.0]),
    data=st.data(),
)
def test_each_gets_what_it_wants_once_and_in_order(
    stretches: list[tuple[bytes, int]],
    batch_records: int,
    per_read: int,
    slice_s: float,
    data: st.DataObject,
) -> None:
    case = make_case(stretches, batch_records)
    file_batches = data.draw(st.integers(0, 5))
    specs = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, len(case.records) - 1),
                FILTERS,
                st.integers(1, 20),
                st.booleans(),
            ),
            min_size=1,
            max_size=8,
        )
    )

    async def scenario() -> list[tuple[Follower, int]]:
        scene = Scene(case, per_read=per_read, slice_s=slice_s)
        scene.feed.file_batches = file_batches
        pairs = [
            (scene.follower(offset, filters, window), offset)
            for offset, filters, window, _ in specs
        ]
        late = [one for (one, _), spec in zip(pairs, specs, strict=True) if spec[3]]
        for number, (follower, _) in enumerate(pairs):
            follower.takes_mixed_topics = number % 2 == 0

        def arrive() -> None:
            if late:
                late.pop().go_on()

        scene.feed.on_read = arrive
        for follower, _ in pairs:
            if follower not in late:
                follower.go_on()
        while late:  # nobody was there to read for
            arrive()
            await asyncio.sleep(0)
        await scene.until_live()
        return pairs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted_spans_module, "RECORDS_ASKED_MIN", 1)
        for follower, offset in asyncio.run(scenario()):
            assert follower.got == wanted_of(case, follower, offset)


async def test_those_who_come_together_read_the_log_once() -> None:
    case = make_case([(b"a", 40), (b"b", 40)], 10)
    scene = Scene(case, per_read=2)
    for number in range(50):
        scene.follower(0, ["a"] if number % 2 else ["b"]).go_on()

    await scene.until_live()

    assert scene.feed.reads == [0, 20, 40, 60]
    assert scene.catch_up.records_scanned == 80


async def test_who_comes_again_with_a_small_window_finds_what_was_decoded() -> None:
    case = make_case([(b"a", 60)], 10)
    scene = Scene(case, per_read=3)
    follower = scene.follower(0, ["a"], window=1)
    follower.go_on()

    await scene.until_live()

    assert len(follower.got) == 60
    assert scene.feed.reads == [0, 30]


async def test_what_was_decoded_before_one_came_does_not_serve_that_one() -> None:
    case = make_case([(b"a", 20), (b"b", 10), (b"d", 10), (b"c", 20)], 20)
    scene = Scene(case, per_read=1)
    early, reader = scene.follower(0, ["a", "b"], window=20), scene.follower(0, ["c"], window=1)
    for follower in (early, reader):
        follower.acknowledges = False
        follower.go_on()
    await until(lambda: bool(reader.got))  # all three pieces are there, decoded for these two
    assert early.behind == {PARTITION: 20}
    late = scene.follower(0, ["d"])
    late.go_on()
    early.acknowledge()

    await until(lambda: not late.behind)

    assert [at for at, _, _ in late.got] == list(range(30, 40))


async def test_a_subscription_made_meanwhile_counts_from_its_start() -> None:
    case = make_case([(b"a", 20), (b"b", 20)], 5)
    scene = Scene(case, per_read=1)
    scene.feed.live_offset = 30
    follower = scene.follower(0, ["a"])
    follower.go_on()

    def subscribe() -> None:
        if "b" not in follower.subscriptions:
            starts = {PARTITION: 30}
            follower.subscriptions["b"] = one = Subscription("b", qos=1, starts=starts)
            scene.matches.trie.add(one, follower)
            scene.feed.live_offset = 40

    scene.feed.on_read = subscribe
    await scene.until_live()

    assert [at for at, _, _ in follower.got] == [*range(20), *range(30, 40)]


async def test_who_goes_in_the_middle_is_served_no_more() -> None:
    case = make_case([(b"a", 40)], 10)
    scene = Scene(case, per_read=1, slice_s=0.0)
    gone, other = scene.follower(0, ["a"]), scene.follower(0, ["a"])

    def leave() -> None:
        if len(scene.feed.reads) == 2:
            scene.catch_up.discard(cast("ClientSession", gone))

    scene.feed.on_read = leave
    gone.go_on()
    other.go_on()
    await until(lambda: not other.behind)

    assert len(other.got) == 40
    assert gone.behind[PARTITION] == len(gone.got) == 10


async def test_what_retention_has_passed_is_skipped_and_counted() -> None:
    case = make_case([(b"a", 20)], 5)
    scene = Scene(case)
    scene.feed.log_start_offset = 7
    follower = scene.follower(2, ["a"])
    follower.go_on()

    await scene.until_live()

    assert follower.skipped == 5
    assert [at for at, _, _ in follower.got] == list(range(7, 20))


@pytest.mark.parametrize("pieces_bytes_max", [0, 10_000])
async def test_what_is_too_large_is_not_kept(
    pieces_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up_module, "PIECE_BYTES_MAX", pieces_bytes_max)
    case = make_case([(b"a", 10)], 10)
    scene = Scene(case)
    follower = scene.follower(0, ["a"], window=2)
    follower.go_on()

    await scene.until_live()

    assert len(follower.got) == 10
    assert len(scene.feed.reads) == (1 if pieces_bytes_max else 5)


async def test_other_work_runs_between_slices() -> None:
    case = make_case([(b"a", 50)], 5)
    scene = Scene(case, per_read=10, slice_s=0.0)
    follower = scene.follower(0, ["a"])
    seen: list[int] = []
    loop = asyncio.get_running_loop()

    def look() -> None:
        seen.append(len(follower.got))
        if follower.behind:
            loop.call_soon(look)

    loop.call_soon(look)
    follower.go_on()
    await scene.until_live()

    assert seen[-1] == 50
    assert set(range(0, 50, 5)) <= set(seen)  # after each run, a batch here
