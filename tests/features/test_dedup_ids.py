"""Deduplication by id, against a plain model and at its edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.dedup_ids import EXPIRED_PER_CALL_MAX, DedupIds, FirstSent, IdBudget, Pending
from gateway.errors import Overloaded

WINDOW_MS = 300_000
NOW = 1_700_000_000_000


def new_ids(ids_max: int = 1_000) -> DedupIds[str]:
    return DedupIds(window_ms=WINDOW_MS, room=IdBudget(ids_max))


def send(ids: DedupIds[str], dedup_id: bytes, place: FirstSent, now: int) -> None:
    ids.complete(dedup_id, ids.begin(dedup_id, now), place)


def test_id_is_known_for_the_window_and_no_longer() -> None:
    ids = new_ids()
    send(ids, b"order-7", FirstSent(2, 41), NOW)

    assert ids.find(b"order-7", NOW + WINDOW_MS - 1) == FirstSent(2, 41)
    assert ids.find(b"order-7", NOW + WINDOW_MS) is None


def test_window_counts_from_the_send_and_is_not_prolonged_by_a_repetition() -> None:
    ids = new_ids()
    send(ids, b"a", FirstSent(0, 1), NOW)

    ids.find(b"a", NOW + WINDOW_MS - 1)

    assert ids.find(b"a", NOW + WINDOW_MS) is None


def test_repetition_waits_for_a_send_that_is_not_kept_yet() -> None:
    ids = new_ids()
    pending = ids.begin(b"a", NOW)

    found = ids.find(b"a", NOW + 1)
    assert isinstance(found, Pending)
    found.waiters.append("second")

    assert ids.complete(b"a", pending, FirstSent(0, 9)) == ["second"]
    assert ids.find(b"a", NOW + 2) == FirstSent(0, 9)


def test_send_that_failed_is_forgotten() -> None:
    ids = new_ids()
    pending = ids.begin(b"a", NOW)
    pending.waiters.append("second")

    assert ids.fail(b"a", pending) == ["second"]

    assert ids.find(b"a", NOW) is None
    assert len(ids) == 0


def test_largest_place_is_kept_exactly() -> None:
    ids = new_ids()
    place = FirstSent((1 << 32) - 1, (1 << 63) - 1)

    send(ids, b"a", place, NOW)

    assert ids.find(b"a", NOW) == place


def test_bound_refuses_and_is_shared() -> None:
    room = IdBudget(2)
    one: DedupIds[str] = DedupIds(window_ms=WINDOW_MS, room=room)
    other: DedupIds[str] = DedupIds(window_ms=WINDOW_MS, room=room)
    send(one, b"a", FirstSent(0, 1), NOW)
    send(other, b"a", FirstSent(0, 1), NOW)

    with pytest.raises(Overloaded):
        one.begin(b"b", NOW + 1)

    other.clear()
    one.begin(b"b", NOW + 1)
    assert room.used == 2


def test_bound_makes_room_of_what_has_expired() -> None:
    ids = new_ids(ids_max=1)
    send(ids, b"a", FirstSent(0, 1), NOW)

    ids.begin(b"b", NOW + WINDOW_MS)

    assert len(ids) == 1


def test_window_that_nobody_asks_gives_back_what_is_over() -> None:
    room = IdBudget(2)
    quiet: DedupIds[str] = DedupIds(window_ms=WINDOW_MS, room=room)
    busy: DedupIds[str] = DedupIds(window_ms=WINDOW_MS, room=room)
    send(quiet, b"a", FirstSent(0, 1), NOW)
    send(quiet, b"b", FirstSent(0, 2), NOW)

    busy.begin(b"c", NOW + WINDOW_MS)

    assert (len(quiet), room.used) == (0, 1)


def test_window_that_is_closed_shares_no_room() -> None:
    room = IdBudget(1)
    one: DedupIds[str] = DedupIds(window_ms=WINDOW_MS, room=room)
    other: DedupIds[str] = DedupIds(window_ms=WINDOW_MS, room=room)
    send(one, b"a", FirstSent(0, 1), NOW)

    one.close()

    other.begin(b"b", NOW)
    with pytest.raises(Overloaded):
        other.begin(b"c", NOW)


def test_id_behind_a_send_that_is_not_kept_expires_by_its_own_time() -> None:
    ids = new_ids()
    ids.begin(b"slow", NOW)
    send(ids, b"a", FirstSent(0, 1), NOW)

    assert ids.find(b"a", NOW + WINDOW_MS - 1) == FirstSent(0, 1)
    assert ids.find(b"a", NOW + WINDOW_MS) is None


def test_one_call_forgets_a_bounded_number() -> None:
    ids = new_ids()
    for number in range(EXPIRED_PER_CALL_MAX + 5):
        send(ids, b"%d" % number, FirstSent(0, number), NOW)

    ids.find(b"other", NOW + WINDOW_MS)

    assert len(ids) == 5


def test_restored_id_is_known_by_the_time_of_its_record() -> None:
    ids = new_ids()
    ids.restore(b"a", FirstSent(0, 5), NOW - 1_000)
    ids.restore(b"a", FirstSent(0, 6), NOW - 500)  # sent anew later: the first counts

    assert ids.find(b"a", NOW) == FirstSent(0, 5)
    assert ids.find(b"a", NOW - 1_000 + WINDOW_MS) is None


def test_restore_above_the_bound_forgets_the_oldest() -> None:
    ids = new_ids(ids_max=2)
    for number, name in enumerate((b"a", b"b", b"c")):
        ids.restore(name, FirstSent(0, number), NOW + number)

    assert ids.find(b"a", NOW + 3) is None
    assert ids.find(b"c", NOW + 3) == FirstSent(0, 2)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c"]),
            st.sampled_from(["keep", "lose"]),
            st.integers(0, WINDOW_MS),
        ),
        max_size=40,
    )
)
def test_any_sends_agree_with_a_plain_model(steps: list[tuple[bytes, str, int]]) -> None:
    ids = new_ids()
    model: dict[bytes, tuple[int, FirstSent]] = {}
    now = NOW
    for offset, (name, fate, later_ms) in enumerate(steps):
        now += later_ms
        known = model.get(name)
        expected = known[1] if known and now - known[0] < WINDOW_MS else None
        found = ids.find(name, now)
        assert found == expected
        if found is None:
            pending = ids.begin(name, now)
            model.pop(name, None)
            if fate == "keep":
                ids.complete(name, pending, FirstSent(1, offset))
                model[name] = (now, FirstSent(1, offset))
            else:
                ids.fail(name, pending)
