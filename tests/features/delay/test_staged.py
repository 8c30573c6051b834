"""Messages due soon leave in order, once, and can be withdrawn until then."""

from hypothesis import given, settings
from hypothesis import strategies as st

from features.delay.message_locations import MessageLocation
from features.delay.staged import Item, Staged
from tests.support.examples import examples

EVERYTHING = (1 << 62, 1 << 30, 1 << 30)


def item(due_unix_ms: int, number: int, size_bytes: int = 1) -> Item:
    return due_unix_ms, number, b"d" * 20, 7, b"x" * size_bytes


def location(number: int) -> MessageLocation:
    return number, 100, 1


def add(staged: Staged, *items: Item) -> None:
    staged.add(list(items), [location(one[1]) for one in items])


def numbers(items: list[Item]) -> list[int]:
    return [one[1] for one in items]


def test_nothing_goes_before_its_time() -> None:
    staged = Staged()
    add(staged, item(100, 1), item(101, 2))

    assert staged.take_due(99, 10, 1_000) == []
    assert numbers(staged.take_due(100, 10, 1_000)) == [1]
    assert staged.next_unix_ms == 101


def test_what_is_put_late_goes_in_its_place() -> None:
    staged = Staged()
    add(staged, item(100, 1), item(120, 2), item(140, 3))
    add(staged, item(110, 4), item(120, 5), item(150, 6))

    first = staged.take_due(119, 10, 1_000)

    assert numbers(first) == [1, 4]
    assert numbers(staged.take_due(*EVERYTHING)) == [2, 5, 3, 6]


def test_what_has_no_body_holds_back_what_comes_after_it() -> None:
    staged = Staged()
    add(staged, item(100, 1), item(120, 2))
    staged.hold([(110, 3, location(3))])

    before = staged.take_due(200, 10, 1_000)
    waits = staged.next_unix_ms
    add(staged, item(110, 3))

    assert numbers(before) == [1]
    assert waits is None
    assert numbers(staged.take_due(200, 10, 1_000)) == [3, 2]


def test_bounds_cut_what_is_taken_and_the_rest_comes_first() -> None:
    staged = Staged()
    add(staged, *[item(100, number, 40) for number in range(1, 6)])
    add(staged, item(90, 6, 500))

    taken = [staged.take_due(200, 3, 100) for _ in range(4)]

    assert [numbers(some) for some in taken] == [[6], [1, 2], [3, 4], [5]]


def test_what_is_withdrawn_and_comes_back_goes_once() -> None:
    staged = Staged()
    add(staged, item(100, 1), item(110, 2))

    withdrawn = staged.withdraw(1)
    again = staged.withdraw(1)
    add(staged, item(105, 1))

    assert (withdrawn, again) == (location(1), None)
    assert numbers(staged.take_due(*EVERYTHING)) == [1, 2]


def test_what_was_withdrawn_of_the_late_does_not_count() -> None:
    staged = Staged()
    add(staged, item(120, 1))
    add(staged, item(100, 2), item(110, 3))
    staged.withdraw(2)

    assert numbers(staged.take_due(200, 1, 1_000)) == [3]


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_all_of_it_goes_once_and_in_order(data: st.DataObject) -> None:  # noqa: PLR0915 - a model
    staged = Staged()
    here: dict[int, int] = {}
    unread: dict[int, int] = {}
    now_unix_ms = last = 0
    for _ in range(data.draw(st.integers(1, 40))):
        what = data.draw(st.sampled_from(["add", "hold", "read", "withdraw", "take", "back"]))
        dues = sorted(data.draw(st.lists(st.integers(0, 300), max_size=6)))
        rows = [(now_unix_ms + due, last + at) for at, due in enumerate(dues, start=1)]
        if what == "add" and rows:
            last += len(rows)
            add(staged, *[item(*row) for row in rows])
            here |= {number: due for due, number in rows}
        elif what == "hold" and rows:
            last += len(rows)
            staged.hold([(*row, location(row[1])) for row in rows])
            unread |= {number: due for due, number in rows}
        elif what == "read" and unread:
            some = staged.unread()
            assert [one[:2] for one in some] == sorted((due, n) for n, due in unread.items())
            add(staged, *[item(due, number) for due, number, _ in some])
            here |= unread
            unread.clear()
        elif what == "withdraw" and here:
            number = data.draw(st.sampled_from(sorted(here)))
            assert staged.withdraw(number) == location(number)
            due_unix_ms = here.pop(number)
            if data.draw(st.booleans()):  # it could not be cancelled
                add(staged, item(due_unix_ms, number))
                here[number] = due_unix_ms
        else:
            now_unix_ms += data.draw(st.sampled_from([0, 5, 100]))
            count_max = data.draw(st.integers(1, 8))
            bar = min(((due, number) for number, due in unread.items()), default=(1 << 62, 0))
            due = sorted((due, number) for number, due in here.items() if due <= now_unix_ms)
            expected = [number for due, number in due if (due, number) < bar][:count_max]
            taken = staged.take_due(now_unix_ms, count_max, 1 << 30)
            expected = expected[: len(taken) or 1]  # fewer, where some were withdrawn
            assert numbers(taken) == expected
            if what == "back":
                staged.put_back(taken)
            else:
                staged.pop(numbers(taken))
                for one in expected:
                    del here[one]
        assert len(staged) == len(here) + len(unread)
    staged.pop([*here, *unread])
    assert staged.size_bytes == 0
