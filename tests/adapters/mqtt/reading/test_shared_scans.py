"""Rides: who stands together goes together, each has its turn, and each knows where it stands."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapters.mqtt.ports import Subscriber
from adapters.mqtt.reading import catch_up as catch_up_module
from adapters.mqtt.reading.shared_scans import TURNS_PER_OLDEST_SCAN, SharedScan, SharedScans
from gateway.errors import StorageUnavailable
from tests.adapters.mqtt.reading.test_catch_up import PARTITION, Scene, make_case, wanted_of
from tests.support.waiting import until


class StubFollower:
    """A follower, as shared scans see it."""

    def __init__(self, offset: int) -> None:
        self.behind = {PARTITION: offset}


def board(scans: SharedScans, offset: int, number: int) -> Subscriber:
    follower = cast("Subscriber", StubFollower(offset))
    scans.add(follower, number)
    return follower


def taken(scans: SharedScans) -> SharedScan:
    scan = scans.take()
    assert scan is not None
    return scan


def test_who_stands_at_one_place_rides_together() -> None:
    scans = SharedScans(PARTITION)
    here = {board(scans, 5, 0), board(scans, 5, 3)}
    there = board(scans, 6, 1)

    first, second = taken(scans), taken(scans)

    assert scans.take() is None
    assert (set(first.followers), first.newest) == (here, 3)
    assert (set(second.followers), second.newest) == ({there}, 1)


def test_the_last_ride_goes_three_times_of_four_and_then_each_in_turn() -> None:
    scans = SharedScans(PARTITION)
    for number, offset in enumerate((50, 30, 10, 40)):
        board(scans, offset, number)
    turns = []
    for _ in range(16):
        scan = taken(scans)
        turns.append(scan.offset)
        scans.put_back(scan)

    assert turns == [10, 10, 10, 50, 10, 10, 10, 30, 10, 10, 10, 40, 10, 10, 10, 50]


def test_a_ride_takes_along_who_stands_in_its_way_and_came_in_early_enough() -> None:
    scans = SharedScans(PARTITION)
    for number, offset in enumerate((10, 19, 20, 10, 15)):
        board(scans, offset, number)
    board(scans, 15, 9)
    scan = SharedScan(10)

    scans.join(scan, 20, number=9)

    assert len(scan.followers) == 3
    assert scan.newest == 3
    assert sorted(one.offset for one in (taken(scans), taken(scans))) == [15, 20]


def test_who_gets_off_stands_where_the_ride_has_come_to_or_further() -> None:
    scans = SharedScans(PARTITION)
    one, ahead, other = (board(scans, 10, number) for number in range(3))
    scan = taken(scans)
    scan.offset = 30
    ahead.behind[PARTITION] = 33
    scans.remove(one)
    scans.remove(ahead)
    scans.remove(one)
    assert one.behind == {PARTITION: 30}
    assert ahead.behind == {PARTITION: 33}
    assert other.behind == {PARTITION: 10}

    scans.put_back(scan)

    assert other.behind == {PARTITION: 30}
    assert list(scans) == [other]
    scans.remove(other)
    assert scans.take() is None


def test_a_ride_that_comes_to_where_another_waits_is_one_with_it() -> None:
    scans = SharedScans(PARTITION)
    one, other = board(scans, 10, 4), board(scans, 30, 1)
    scan = taken(scans)
    scan.offset = 30

    scans.put_back(scan)

    both = taken(scans)
    assert (set(both.followers), both.newest) == ({one, other}, 4)
    both.offset = 40
    scans.clear()
    assert one.behind == other.behind == {PARTITION: 40}
    assert not both.followers


async def test_who_is_a_little_behind_does_not_wait_for_all_who_are_far_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catch_up_module, "SCAN_PIECES", 1)
    case = make_case([(b"a", 8_000), (b"b", 10)], 10)
    scene = Scene(case, per_read=1)
    for offset in range(0, 1_000, 20):
        scene.follower(offset, ["a"]).go_on()
    near = scene.follower(8_000, ["b"])
    near.go_on()

    await scene.until_live()

    # Each of the others had one turn before, and the last of them three beside each.
    assert scene.feed.reads.index(8_000) <= TURNS_PER_OLDEST_SCAN * 51
    for follower, offset in zip(scene.followers, range(0, 1_000, 20), strict=False):
        assert follower.got == wanted_of(case, follower, offset)


async def test_those_far_behind_come_up_and_the_rest_of_the_log_is_read_once() -> None:
    case = make_case([(b"a", 4_000)], 10)
    scene = Scene(case, per_read=1)
    for offset in (0, 800):
        scene.follower(offset, ["a"]).go_on()

    await scene.until_live()

    assert len(scene.feed.reads) < 1.5 * 400


async def test_a_piece_that_cannot_be_read_does_not_hold_up_who_is_past_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catch_up_module, "RETRY_S", 0)
    case = make_case([(b"a", 500)], 10)
    scene = Scene(case, per_read=1)
    cast("Any", scene.feed).partition = SimpleNamespace(
        topic=SimpleNamespace(name=SimpleNamespace(name="t"))
    )
    failed = 0

    def fail_at_the_start() -> None:
        nonlocal failed
        if scene.feed.reads[-1] == 0:
            failed += 1
            raise StorageUnavailable("the disk")

    scene.feed.on_read = fail_at_the_start
    scene.follower(0, ["a"]).go_on()
    past = scene.follower(100, ["a"])
    past.go_on()
    await until(lambda: not past.behind)

    turns = 400 // 10 // catch_up_module.SCAN_PIECES
    assert failed <= TURNS_PER_OLDEST_SCAN * turns
    scene.feed.on_read = lambda: None
    await scene.until_live()
    assert [len(one.got) for one in scene.followers] == [500, 400]
