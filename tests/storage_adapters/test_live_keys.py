"""Keys in memory: a search misses nothing, whatever is noted and forgotten."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from storage_adapters.segment_log.live_keys import STRETCH_BYTES, LiveKeys

P = 7
KEYS = [b"a", b"b", b"c"]

added = st.tuples(
    st.integers(0, 3),  # offsets left out before
    st.integers(1, 5),
    st.sampled_from([10, STRETCH_BYTES // 2, STRETCH_BYTES]),
    st.sets(st.sampled_from(KEYS)),
)


@given(st.lists(added, max_size=12), st.integers(0, 40), st.integers(0, 60), st.integers(0, 60))
def test_every_offset_that_may_hold_a_key_is_within_a_span(
    steps: list[tuple[int, int, int, set[bytes]]], forgotten: int, start: int, end: int
) -> None:
    live = LiveKeys(1 << 20)
    without: dict[bytes, set[int]] = {key: set() for key in KEYS}
    offset = 0
    for gap, count, size_bytes, keys in steps:
        offset += gap
        live.add(P, (offset, offset + count), size_bytes, [hash(key) for key in keys])
        for key in set(KEYS) - keys:
            without[key] |= set(range(offset, offset + count))
        offset += count
    assert live.end(P) == (offset if steps else 0)
    live.forget_before(P, forgotten)

    for key in KEYS:
        spans = list(live.spans(P, {hash(key)}, start, end))
        assert all(start <= low < high <= end for low, high in spans)
        assert all(one[1] <= two[0] for one, two in pairwise(spans))
        covered = {at for low, high in spans for at in range(low, high)}
        assert set(range(start, end)) - covered <= without[key]

    live.forget_before(P, offset)
    assert live.used_bytes == 0


def test_small_looks_share_a_stretch() -> None:
    live = LiveKeys(1 << 20)
    for n in range(100):
        live.add(P, (n, n + 1), STRETCH_BYTES // 20, [hash(b"%d" % n)])
    assert list(live.spans(P, {hash(b"55")}, 0, 100)) == [(40, 60)]
    assert list(live.spans(P, {hash(b"nobody")}, 0, 100)) == []
    assert live.used_bytes < 5 * 300 + 100 * 8


def test_others_are_dropped() -> None:
    live = LiveKeys(1)
    live.add(P, (0, 3), 10, [1])
    live.add(P + 1, (0, 3), 10, [1])
    assert live.is_full
    live.keep_only({P})
    assert (live.end(P), live.end(P + 1)) == (3, 0)
    assert live.used_bytes == 256 + 8
