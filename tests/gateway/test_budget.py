"""The budgets that connections share: order, bounds, and giving back within giving back."""

from collections.abc import Callable

from gateway.budget import PROGRESS_BYTES, Budget, Intake


def taker(budget: Budget, taken: list[str], name: str, size_bytes: int) -> Callable[[], None]:
    def retry() -> None:
        if budget.has_room(size_bytes):
            budget.take(size_bytes)
            taken.append(name)
        else:
            budget.wait(retry)

    return retry


def test_who_waits_tries_again_in_order_while_there_is_room() -> None:
    budget, taken = Budget("test", 10), list[str]()
    budget.take(10)
    for name in ("a", "b", "c"):
        budget.wait(taker(budget, taken, name, 5))
    budget.give_back(5)
    assert taken == ["a"]
    budget.give_back(10)
    assert taken == ["a", "b", "c"]
    assert (budget.bytes_taken, budget.waiting_count) == (10, 0)


def test_who_needs_more_than_there_is_waits_on_and_each_is_asked_once() -> None:
    budget, taken = Budget("test", 10), list[str]()
    budget.take(10)
    budget.wait(taker(budget, taken, "large", 8))
    budget.wait(taker(budget, taken, "small", 4))
    budget.give_back(4)
    assert taken == ["small"]
    assert budget.waiting_count == 1


def test_alone_one_may_be_larger_than_the_budget() -> None:
    budget = Budget("test", 10)
    assert budget.has_room(11)
    budget.take(1)
    assert not budget.has_room(11)


def test_a_crowd_that_gives_back_at_once_costs_no_recursion() -> None:
    budget, seen = Budget("test", 10), list[int]()
    budget.take(10)

    def visit(number: int) -> None:
        seen.append(number)
        budget.take(1)
        budget.give_back(1)

    for number in range(5000):
        budget.wait(lambda number=number: visit(number))  # type: ignore[misc]
    budget.give_back(1)
    assert seen == list(range(5000))


def test_who_has_left_is_not_called() -> None:
    budget, taken = Budget("test", 10), list[str]()
    budget.take(10)
    retry = taker(budget, taken, "a", 5)
    budget.wait(retry)
    budget.wait(retry)
    budget.leave(retry)
    budget.give_back(10)
    assert (taken, budget.waiting_count) == ([], 0)


def test_a_request_stalls_after_the_time_that_its_budget_says() -> None:
    budget = Budget("test", 10, stall_s_max=5.0)
    intake = Intake(budget, lambda: None)
    intake.count(10, is_midway=True)
    budget.wait(lambda: None)
    assert not intake.is_stalled(10, 100.0, is_held=False)
    assert not intake.is_stalled(10, 105.0, is_held=False)
    assert intake.is_stalled(10, 105.1, is_held=False)
    assert not intake.is_stalled(10 + PROGRESS_BYTES, 105.1, is_held=False)
