from features.queue.states import NO_TIME, Timed
from features.queue.timers import Timers


def test_items_come_out_at_their_time_in_order() -> None:
    timers = Timers()
    late, early, same = Timed(), Timed(), Timed()
    timers.put(late, 20)
    timers.put(early, 10)
    timers.put(same, 10)

    assert timers.next_due_unix_ms == 10
    assert timers.pop(9) is None
    assert [timers.pop(10), timers.pop(10), timers.pop(10)] == [early, same, None]
    assert timers.next_due_unix_ms == 20
    assert timers.pop(99) is late
    assert late.due_unix_ms == NO_TIME
    assert timers.next_due_unix_ms is None


def test_item_has_one_time_only() -> None:
    timers = Timers()
    item = Timed()
    timers.put(item, 10)
    timers.put(item, 30)
    timers.put(item, 30)

    assert timers.pop(29) is None
    assert timers.next_due_unix_ms == 30
    assert timers.pop(30) is item
    assert timers.pop(99) is None


def test_item_that_was_called_off_does_not_come() -> None:
    timers = Timers()
    item = Timed()
    timers.put(item, 10)
    timers.cancel(item)
    assert timers.next_due_unix_ms is None
    timers.put(item, 10)

    assert timers.pop(10) is item
    assert timers.pop(10) is None


def test_what_was_called_off_is_thrown_out() -> None:
    timers = Timers()
    stays = Timed()
    timers.put(stays, 1_000_000)
    for due_unix_ms in range(1_000):
        item = Timed()
        timers.put(item, due_unix_ms)
        timers.cancel(item)

    assert len(timers._heap) < 200
    assert timers.next_due_unix_ms == 1_000_000


def test_nothing_comes_after_a_clear() -> None:
    timers = Timers()
    timers.put(Timed(), 1)
    timers.clear()

    assert timers.pop(9) is None
