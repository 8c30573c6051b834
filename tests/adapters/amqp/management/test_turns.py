"""Long lists and changed policies leave the event loop its turns."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.amqp import policies
from adapters.amqp.management.call import STRINGS_MAX, bytes_outside_strings
from adapters.amqp.management.turns import (
    ROWS_PER_TURN,
    SORTED_PER_TURN,
    in_turns,
    sorted_in_turns,
)
from adapters.amqp.v091.fields import Table
from gateway.queues.model import QueueSettings
from tests.adapters.amqp.conformance.methods import declare
from tests.adapters.amqp.in_process import amqp_in_process
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"a": "b\\"c", "d": 1}', 15),
        (b'["' + b'\\"' * 1_000_000, 3),  # a string without an end, looked at once
        (b'["\\', 3),
        (b"[" + b'"",' * STRINGS_MAX + b"1]", 3 * STRINGS_MAX + 3),
        (b"[" + b'"abc",' * (STRINGS_MAX + 1) + b"1]", 6 * STRINGS_MAX + 9),
    ],
    ids=["escapes", "no end", "no escape", "many", "too many"],
)
def test_strings_count_as_empty_up_to_a_number(data: bytes, found: int) -> None:
    assert bytes_outside_strings(data) == found


class Turns:
    """Counter of the loop's turns."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.count += 1
        self._handle = self._loop.call_soon(self._turn)

    def end(self) -> None:
        self._handle.cancel()


@contextmanager
def counted() -> Iterator[Turns]:
    turns = Turns()
    yield turns
    turns.end()


async def test_others_have_a_turn_after_some_rows() -> None:
    with counted() as turns:
        seen = [turns.count async for _ in in_turns(range(2 * ROWS_PER_TURN + 1))]
    assert len(seen) == 2 * ROWS_PER_TURN + 1
    assert len(set(seen)) == 3
    assert seen.count(seen[0]) == ROWS_PER_TURN


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("count", [0, 1, SORTED_PER_TURN, 5 * SORTED_PER_TURN + 7])
async def test_things_are_sorted_as_by_sorted(count: int, is_reversed: bool) -> None:  # noqa: FBT001
    pairs = [(number * 7_919 % 101, number) for number in range(count)]
    with counted() as turns:
        found = await sorted_in_turns(pairs, lambda pair: pair[0], is_reversed=is_reversed)
    assert found == sorted(pairs, key=lambda pair: pair[0], reverse=is_reversed)
    assert turns.count >= count // SORTED_PER_TURN


async def test_a_changed_policy_looks_at_some_queues_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "RENEWED_PER_TURN", 2)
    async with amqp_in_process(tmp_path) as one:
        peer = await one.peer().open(1)
        peer.send(1, *[declare(f"q{number}") for number in range(5)])
        await until(lambda: one.queue("q4") is not None)
        applied = one.node.policies
        settings_for = applied.settings_for
        seen: list[int] = []
        with counted() as turns:

            def noted(namespace: str, name: str, arguments: Table) -> QueueSettings:
                seen.append(turns.count)
                return settings_for(namespace, name, arguments)

            monkeypatch.setattr(applied, "settings_for", noted)
            await applied.apply("/")
        assert [seen.count(turn) for turn in dict.fromkeys(seen)] == [1, 2, 2]
