"""Histories of dead letters, and the end of their cycles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.dead_letter_history import (
    DEATHS_MAX,
    HISTORY_HEADER,
    REJECTED,
    Death,
    format_history,
    history_of,
    is_cycle,
    with_death,
)


def died(queue: str, reason: str = "expired", now: int = 1_000) -> Death:
    return Death(queue, reason, 1, now, now, "from", (f"key-{now}",), 30)


def test_the_same_death_is_counted_and_comes_first() -> None:
    history = with_death([], died("a", now=1))
    history = with_death(history, died("b", now=2))
    history = with_death(history, died("a", now=3))

    assert history == [Death("a", "expired", 2, 1, 3, "from", ("key-1",), 30), died("b", now=2)]


def test_a_cycle_without_a_rejection_ends() -> None:
    history = with_death(with_death([], died("a")), died("b"))

    assert is_cycle(history, "a")
    assert is_cycle(history, "b")
    assert not is_cycle(history, "c")


def test_a_rejection_since_then_lets_it_go_on() -> None:
    history = with_death([], died("work", REJECTED))
    history = with_death(history, died("retry"))
    assert not is_cycle(history, "work")
    assert is_cycle(history, "retry")

    for now in range(5_000):
        history = with_death(history, died("work", REJECTED, now))
        assert not is_cycle(history, "retry")
        history = with_death(history, died("retry", now=now))
        assert not is_cycle(history, "work")
    assert [one.times for one in history] == [5_001, 5_001]


def test_a_rejection_before_the_queue_does_not_count() -> None:
    history = with_death(with_death([], died("work", REJECTED)), died("a"))
    history = with_death(history, died("b"))
    assert is_cycle(history, "a")


def test_a_circle_of_many_queues_ends() -> None:
    history: list[Death] = []
    for number in range(DEATHS_MAX):
        assert not is_cycle(history, "new")
        history = with_death(history, died(str(number)))
    assert is_cycle(history, "new")


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([REJECTED, "expired"])), max_size=30
    ),
    st.sampled_from("abcd"),
)
def test_cycles_are_those_of_a_plain_model(deaths: list[tuple[str, str]], queue: str) -> None:
    history: list[Death] = []
    for number, (name, reason) in enumerate(deaths):
        history = with_death(history, died(name, reason, number))
    latest = {pair: number for number, pair in enumerate(deaths)}  # ``x-death`` keeps the last
    rejected = max((n for (_, reason), n in latest.items() if reason == REJECTED), default=-1)
    here = max((n for (name, _), n in latest.items() if name == queue), default=-1)

    assert is_cycle(history, queue) is (here > rejected)


@given(st.lists(st.builds(died, st.text(max_size=9), st.text(max_size=9), st.integers(0))))
def test_a_history_is_read_as_it_was_written(history: list[Death]) -> None:
    headers = [("other", b"1"), (HISTORY_HEADER, format_history(history))]
    assert history_of(headers) == history[:DEATHS_MAX]


@pytest.mark.parametrize("character", ["k", "\N{SNOWMAN}"])
@pytest.mark.parametrize("length", [1_000_000, 255])
def test_a_history_of_long_names_is_read_again_and_its_cycle_found(
    character: str, length: int
) -> None:
    text = character * length
    history: list[Death] = []
    for number in range(DEATHS_MAX - 1):
        death = died(str(number))._replace(exchange=text[:255], routing_keys=(text,) * 20)
        history = with_death(history_of([(HISTORY_HEADER, format_history(history))]), death)

    found = history_of([(HISTORY_HEADER, format_history(history))])

    assert [one.queue for one in found] == [str(n) for n in reversed(range(DEATHS_MAX - 1))]
    assert is_cycle(found, "0")


@pytest.mark.parametrize(
    "value",
    [None, b"", b"{}1", b"[1]", b"[[1,2]]", b'[["a","b","c",1,1,"e",[],1]]', b"[" * 9_999],
)
def test_a_header_that_is_no_history_is_none(value: bytes | None) -> None:
    assert history_of([(HISTORY_HEADER, value)]) == []
