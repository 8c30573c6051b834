"""Each anomaly is found, and a history without one passes."""

import pytest

from tests.support.transaction_history import Attempt, Outcome, find_anomalies

COMMITTED, ABORTED, UNKNOWN = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN


def attempt(
    outcome: Outcome, *writes: tuple[str, str], reads: tuple[tuple[str, str], ...] = ()
) -> Attempt:
    return Attempt("p", list(writes), list(reads), outcome)


GOOD = [
    attempt(COMMITTED, ("x", "1"), ("y", "2")),
    attempt(ABORTED, ("x", "3")),
    attempt(UNKNOWN, ("x", "4"), ("y", "5"), reads=(("x", "1"),)),
    attempt(UNKNOWN, ("x", "6")),
]
FINAL = {"x": ["1", "4"], "y": ["2", "5"]}


def test_good_history_passes() -> None:
    assert find_anomalies(GOOD, FINAL, [{"x": ["1"], "y": []}]) == []


@pytest.mark.parametrize(
    ("final", "what"),
    [
        ({"x": ["1", "3", "4"], "y": ["2", "5"]}, "aborted read"),
        ({"x": ["1", "4"], "y": ["5"]}, "lost write"),
        ({"x": ["1", "4"], "y": ["2"]}, "torn"),
        ({"x": ["1", "4", "1"], "y": ["2", "5"]}, "double"),
        ({"x": ["1", "4", "9"], "y": ["2", "5"]}, "foreign value"),
        ({"x": ["4", "1"], "y": ["2", "5"]}, "order"),
    ],
)
def test_anomaly_of_the_lists_is_found(final: dict[str, list[str]], what: str) -> None:
    assert any(one.startswith(what) for one in find_anomalies(GOOD, final))


def test_reader_that_has_read_something_else_is_found() -> None:
    [found] = find_anomalies(GOOD, FINAL, [{"x": ["4"]}])

    assert found.startswith("divergence")


def test_aborted_value_that_was_read_is_found() -> None:
    reader = attempt(COMMITTED, reads=(("x", "3"),))

    [found] = find_anomalies([*GOOD, reader], FINAL)

    assert found.startswith("aborted read")


def test_transactions_that_read_from_each_other_are_found() -> None:
    one = attempt(COMMITTED, ("x", "1"), reads=(("y", "2"),))
    two = attempt(COMMITTED, ("y", "2"), reads=(("x", "1"),))

    [found] = find_anomalies([one, two], {"x": ["1"], "y": ["2"]})

    assert found.startswith("cycle")
