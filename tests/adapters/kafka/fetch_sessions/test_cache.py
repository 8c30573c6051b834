"""The cache of fetch sessions: who may use one, and which goes for a new one."""

from adapters.kafka.codecs.fetch_codec import FetchPartition
from adapters.kafka.errors import ErrorCode
from adapters.kafka.node.fetch_session import FetchSession, next_epoch
from adapters.kafka.node.fetch_session_cache import UNUSED_MS_MAX, FetchSessionCache
from adapters.kafka.node.fetch_target import FetchTarget
from gateway.auth.ports import Principal
from gateway.clock import ManualClock

OWNER = "default", Principal("alice", "kafka", "10.0.0.1")


def session(partitions: int) -> FetchSession:
    made = FetchSession(OWNER, 0, by_id=False)
    grow(made, partitions)
    return made


def grow(made: FetchSession, partitions: int) -> None:
    for number in range(partitions):
        made.put("orders", FetchTarget(FetchPartition(number, -1, 0, 1), None, None))


class Pending:
    """Pending request of a session that notes its refusal."""

    code = ErrorCode.NONE

    def refuse(self, code: ErrorCode, *, session_id: int = 0) -> None:
        assert not session_id
        self.code = code


def cache_of(
    clock: ManualClock, *, sessions: int = 2, partitions: int = 100
) -> FetchSessionCache:
    return FetchSessionCache(clock, sessions_max=sessions, partitions_max=partitions)


async def test_a_session_is_its_owners_alone() -> None:
    cache, made = cache_of(ManualClock()), session(1)
    cache.admit(made)
    others = [
        ("other", OWNER[1]),
        ("default", Principal("bob", "kafka", "10.0.0.1")),
        ("default", Principal("alice", "kafka", "10.0.0.2")),
    ]
    assert cache.get(made.id, OWNER) is made
    assert [cache.get(made.id, owner) for owner in others] == [None] * 3


async def test_a_full_cache_keeps_what_is_young_and_used() -> None:
    clock = ManualClock()
    cache, kept = cache_of(clock), [session(1), session(1)]
    assert all(cache.admit(one) for one in kept)
    clock.advance(UNUSED_MS_MAX)
    assert cache.admit(session(50)) == 0
    assert [cache.get(one.id, OWNER) for one in kept] == kept


async def test_the_session_unused_for_longest_goes_first() -> None:
    clock = ManualClock()
    cache, old, used = cache_of(clock), session(9), session(9)
    cache.admit(old)
    cache.admit(used)
    old.pending = pending = Pending()
    clock.advance(UNUSED_MS_MAX + 1)
    cache.touch(used)
    new = session(1)
    assert cache.admit(new)
    assert [cache.get(one.id, OWNER) for one in (old, used, new)] == [None, used, new]
    assert pending.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not old.partitions


async def test_the_smallest_of_those_used_long_goes_for_a_larger_one() -> None:
    clock = ManualClock()
    cache, small, large = cache_of(clock), session(2), session(5)
    cache.admit(large)
    cache.admit(small)
    clock.advance(UNUSED_MS_MAX + 1)
    cache.touch(large)
    cache.touch(small)
    equal, larger = session(2), session(3)
    assert cache.admit(equal) == 0
    assert cache.admit(larger)
    assert [cache.get(one.id, OWNER) for one in (small, large)] == [None, large]
    assert cache.partition_count == 8


async def test_partitions_of_all_sessions_are_bounded() -> None:
    cache, first, second = cache_of(ManualClock(), partitions=10), session(6), session(4)
    assert cache.admit(first)
    assert cache.admit(session(5)) == 0
    assert cache.admit(second)
    grow(second, 5)
    assert not cache.touch(second)
    assert (len(cache), cache.partition_count) == (1, 6)


async def test_a_large_session_is_closed_in_slices() -> None:
    cache, made = cache_of(ManualClock(), partitions=3_000), session(2_500)
    cache.admit(made)
    cache.remove(made)
    assert len(made.partitions) == 1_500


def test_epochs_go_round_without_those_of_full_fetches() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 1)] == [1, 2, 1]
