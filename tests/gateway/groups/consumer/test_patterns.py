"""Patterns of a group of KIP-848: each name is matched once, many of them in a thread."""

from collections.abc import Callable

import pytest

from gateway.groups.consumer import patterns
from gateway.groups.consumer.model import NO_PARTITIONS, HeartbeatResult
from tests.gateway.groups.consumer.test_group import REBALANCE_MS, Rig, numbers


def join_by_pattern(rig: Rig, member_id: str, **fields: object) -> HeartbeatResult:
    """Join without any names."""
    fields = {"rebalance_timeout_ms": REBALANCE_MS, "owned": NO_PARTITIONS} | fields
    return rig.beat(member_id, 0, **fields)


def test_a_name_is_matched_once_by_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[str] = []

    def compile_pattern(pattern: str) -> Callable[[str], bool]:
        def matches(name: str) -> bool:
            matched.append(f"{pattern} {name}")
            return name.startswith(pattern)

        return matches

    monkeypatch.setattr(patterns, "compile_pattern", compile_pattern)
    rig = Rig(t=6)
    join_by_pattern(rig, "a", regex="t")
    rig.beat("a", 1, regex="t")
    join_by_pattern(rig, "b", regex="u")
    rig.beat("b", -1)
    assert matched == ["t t", "u t"]

    rig.topics.change(t=7, u=1)
    rig.beat("a", rig.group.by_id["a"].epoch)
    assert matched[2:] == ["t u"], "that of a member which left is forgotten"
    assert rig.group.topics() == {"t"}

    rig.topics.change(u=1)
    rig.beat("a", rig.group.by_id["a"].epoch)
    assert rig.group.topics() == frozenset()
    rig.topics.change(t=7, u=1)
    rig.beat("a", rig.group.by_id["a"].epoch)
    assert matched[3:] == ["t t"], "a topic that is made again is another one"


def test_names_that_a_member_may_not_see_are_not_matched() -> None:
    rig = Rig(t=6, u=2)
    join_by_pattern(rig, "a", regex=".*", can_see=lambda name: name == "u")
    assert rig.group.topics() == {"u"}


def test_many_matches_are_left_to_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "INLINE_MATCHES_MAX", 0)
    rig = Rig(t=6, u=2)
    join_by_pattern(rig, "a", regex=".*")
    assert rig.group.topics() == frozenset()
    work = rig.group.take_pattern_work()
    assert work is not None
    assert work.size == 2
    rig.topics.change(t=6)
    rig.beat("a", 1)
    assert rig.group.take_pattern_work() is None, "one at a time"

    rig.group.install_patterns(work, work.run(), rig.topics, lambda _: True)

    assert rig.group.topics() == {"t"}
    assert rig.group.needs_assignment
    assert numbers(rig.beat("a", 1)) == list(range(6))


def test_matches_that_failed_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "INLINE_MATCHES_MAX", 0)
    rig = Rig(t=6, u=2)
    join_by_pattern(rig, "a", regex=".*")
    work = rig.group.take_pattern_work()
    assert work is not None
    rig.group.install_patterns(work, None, rig.topics, lambda _: True)
    rig.beat("a", 1)
    assert rig.group.take_pattern_work() == work
