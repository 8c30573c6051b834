"""An explicit-state model checker: every interleaving of a small model, breadth first.

A model is an initial state, a function that yields ``(name of the step, next state)``, a function
that returns the broken invariants of a state, and a goal. States are hashable values. Breadth
first finds the shortest way to a bad state, so a report is short enough to read.

The goal catches what no invariant of one state can: a model that never does anything wrong because
it is stuck. Every reachable state must have a way to a state of the goal.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)


class TooManyStates(Exception):
    """The model has more states than the caller allows: a bound of it is missing."""


@dataclass(frozen=True)
class Found:
    """The result of a check: the count of states, and the shortest way to a bad one, if any."""

    states: int
    problem: str = ""
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.problem:
            return f"{self.states} states, none bad"
        way = "".join(f"\n  {number}. {step}" for number, step in enumerate(self.steps, 1))
        return f"{self.problem}, after {len(self.steps)} steps ({self.states} states):{way}"


@dataclass(frozen=True)
class Model(Generic[State]):
    """A model to check."""

    initial: State
    steps: Callable[[State], Iterable[tuple[str, State]]]
    broken: Callable[[State], str]
    """Return the broken invariant in words, or an empty string."""
    is_goal: Callable[[State], bool]


def check(model: Model[State], *, states_max: int) -> Found:
    """Visit every reachable state; return the first bad one by its steps.

    Raises ``TooManyStates`` beyond ``states_max``.
    """
    known = {model.initial: 0}
    links = [(0, "")]  # the state before, and the step from it
    sources: list[list[int]] = [[]]
    goals: list[int] = []
    waiting = deque([model.initial])
    for number in count():
        if not waiting:
            return _check_goal(links, sources, goals)
        state = waiting.popleft()  # the states are numbered in the order they are visited
        problem = model.broken(state)
        if problem:
            return Found(len(known), problem, _way(links, number))
        if model.is_goal(state):
            goals.append(number)
        for name, after in model.steps(state):
            found = known.setdefault(after, len(known))
            if found == len(links):
                links.append((number, name))
                sources.append([])
                waiting.append(after)
            sources[found].append(number)
        if len(known) > states_max:
            raise TooManyStates(f"more than {states_max} states")
    raise AssertionError


def _check_goal(
    links: list[tuple[int, str]], sources: list[list[int]], goals: list[int]
) -> Found:
    """Return the first state that has no way to the goal, if there is one."""
    good = set(goals)
    while goals:
        for source in sources[goals.pop()]:
            if source not in good:
                good.add(source)
                goals.append(source)
    for number in range(len(links)):  # the first is the nearest
        if number not in good:
            return Found(len(links), "stuck: the goal is out of reach", _way(links, number))
    return Found(len(links))


def _way(links: list[tuple[int, str]], number: int) -> tuple[str, ...]:
    names = []
    while number:
        number, name = links[number]
        names.append(name)
    return tuple(reversed(names))
