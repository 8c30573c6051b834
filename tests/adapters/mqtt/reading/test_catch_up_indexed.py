"""Catching up where an index of keys names the batches that need not be read."""

import pytest

from adapters.mqtt.reading import catch_up as catch_up_module
from adapters.mqtt.reading import key_lookup as wanted_spans_module
from tests.adapters.mqtt.reading.test_catch_up import (
    Case,
    Follower,
    Scene,
    make_case,
    wanted_of,
)
from tests.support.waiting import until


def indexed_scene(case: Case, monkeypatch: pytest.MonkeyPatch, *, file_batches: int) -> Scene:
    monkeypatch.setattr(wanted_spans_module, "RECORDS_ASKED_MIN", 1)
    scene = Scene(case)
    scene.feed.file_batches = file_batches
    return scene


async def hold_at_the_first(first: Follower) -> None:
    """Let one whose window is 1 get a message, and acknowledge nothing."""
    first.acknowledges = False
    first.go_on()
    await until(lambda: bool(first.got))


async def pass_by(first: Follower, late: Follower) -> None:
    """Let another one come and read all, and then the first go on."""
    late.go_on()
    await until(lambda: not late.behind)
    first.acknowledges = True
    first.acknowledge()


async def test_where_nothing_is_wanted_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case([(b"a", 40), (b"b/c", 10), (b"a", 50), (b"d", 10), (b"a", 90)], 10)
    scene = indexed_scene(case, monkeypatch, file_batches=10)
    for filters in (["b/#"], ["d"], ["b/+", "d", "z"]):
        scene.follower(0, filters).go_on()

    await scene.until_live()

    assert [len(follower.got) for follower in scene.followers] == [10, 10, 20]
    assert scene.feed.reads == [40, 100]
    assert scene.catch_up.records_scanned == 20
    assert scene.feed.asked == [(0, 200), (100, 200)]  # once for all, a file at a time


async def test_who_wants_all_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case([(b"a", 40)], 10)
    scene = indexed_scene(case, monkeypatch, file_batches=10)
    scene.follower(0, ["b"]).go_on()
    scene.follower(0, ["#"]).go_on()

    await scene.until_live()

    assert scene.feed.asked == []
    assert scene.catch_up.records_scanned == 40


async def test_who_comes_later_is_asked_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case([(b"a", 40), (b"b", 10), (b"c", 10), (b"a", 40)], 10)
    scene = indexed_scene(case, monkeypatch, file_batches=10)
    first, late = scene.follower(0, ["b"], window=1), scene.follower(5, ["c"])
    await hold_at_the_first(first)
    await pass_by(first, late)

    await scene.until_live()

    assert [at for at, _, _ in first.got] == list(range(40, 50))
    assert [at for at, _, _ in late.got] == list(range(50, 60))
    assert scene.feed.asked == [(0, 100), (0, 100)]
    assert set(scene.feed.reads) <= {40, 41, 50}


async def test_retention_may_pass_while_the_index_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = make_case([(b"a", 40), (b"b", 10), (b"a", 40), (b"b", 10)], 10)
    scene = indexed_scene(case, monkeypatch, file_batches=10)
    follower = scene.follower(0, ["b"])

    def retain() -> None:
        if scene.feed.asked and not scene.feed.log_start_offset:
            scene.feed.log_start_offset = 60

    scene.feed.on_read = retain
    follower.go_on()

    await scene.until_live()

    assert [at for at, _, _ in follower.got] == list(range(90, 100))


async def test_a_batch_that_compaction_has_taken_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = make_case([(b"a", 40), (b"b", 10), (b"a", 40), (b"b", 10)], 10)
    scene = indexed_scene(case, monkeypatch, file_batches=10)
    follower = scene.follower(0, ["b"])

    def compact() -> None:
        if scene.feed.reads:  # the index has named it by then
            scene.feed.take_away(40)

    scene.feed.on_read = compact
    follower.go_on()

    await scene.until_live()

    assert scene.feed.reads[0] == 40
    assert [at for at, _, _ in follower.got] == list(range(90, 100))


async def test_what_is_wanted_in_many_places_is_read_in_several_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = catch_up_module.SPANS_MAX + 3
    case = make_case([(b"a", 10), (b"b", 10)] * places, 10)
    scene = indexed_scene(case, monkeypatch, file_batches=2 * places)
    follower = scene.follower(0, ["b"])
    follower.go_on()

    await scene.until_live()

    assert follower.got == wanted_of(case, follower, 0)
    assert scene.feed.reads == list(range(10, 20 * places, 20))


async def test_an_answer_with_more_filters_keeps_what_it_has_said_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catch_up_module, "SPANS_MAX", 1)
    case = make_case([(b"a", 20), (b"b", 10), (b"a", 20), (b"c", 10), (b"b", 10)], 10)
    scene = indexed_scene(case, monkeypatch, file_batches=10)
    first, late = scene.follower(0, ["b"], window=1), scene.follower(25, ["c"])
    await hold_at_the_first(first)
    await pass_by(first, late)

    await scene.until_live()

    for follower, offset in ((first, 0), (late, 25)):
        assert follower.got == wanted_of(case, follower, offset)
    assert len(scene.feed.asked) == 2


async def test_files_may_be_others_when_the_index_is_asked_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = make_case([(b"a", 20), (b"b", 10), (b"a", 20), (b"c", 10), (b"a", 20)], 10)
    scene = indexed_scene(case, monkeypatch, file_batches=8)
    first, late = scene.follower(0, ["b"], window=1), scene.follower(45, ["c"])
    await hold_at_the_first(first)
    scene.feed.file_batches = 2  # what was one file is four
    await pass_by(first, late)

    await scene.until_live()

    for follower, offset in ((first, 0), (late, 45)):
        assert follower.got == wanted_of(case, follower, offset)
