"""Owners of shards: a node on its own, and the placement that tests set."""

from collections.abc import Collection
from uuid import UUID

from gateway.placement import Node, Placement, SingleNode, shard_of
from gateway.slots import SLOT_COUNT, shard_of_client, shard_of_group, shard_of_partition
from gateway.testing.placement import SettablePlacement


def test_a_single_node_owns_every_shard_at_its_incarnation() -> None:
    placement: Placement = SingleNode(
        7, node_id=3, cluster_id="abc", host="here", shard_count=64
    )

    assert placement.owns_all
    assert all(placement.owns(shard) for shard in range(64))
    assert {placement.epoch(shard) for shard in range(64)} == {7}
    assert {placement.owner(shard) for shard in range(64)} == {Node(3, "here")}
    assert placement.nodes() == (Node(3, "here"),)
    assert (placement.node_id, placement.cluster_id) == (3, "abc")


def test_a_given_shard_is_sealed_before_its_owner_and_epoch_change() -> None:
    placement = SettablePlacement(4)
    seen: list[tuple[str, list[int], bool, int]] = []

    def note(what: str, shards: Collection[int]) -> None:
        seen.append((what, list(shards), placement.owns(1), placement.epoch(1)))

    placement.before_release.append(lambda shards: note("seal", shards))
    placement.on_change.append(lambda shards: note("changed", shards))
    placement.give([1, 2])
    placement.give([1])  # nothing changes
    placement.take([1])
    placement.abandon([3])

    assert seen == [
        ("seal", [1, 2], True, 1),
        ("changed", [1, 2], False, 2),
        ("changed", [1], True, 3),
        ("seal", [3], True, 3),
        ("changed", [3], True, 3),
    ]
    owners = [placement.owner(shard) for shard in range(4)]
    assert owners == [placement.node, placement.node, placement.other, None]
    assert not placement.owns_all


class _Topic:
    def __init__(self, *, is_internal: bool) -> None:
        self.uuid = UUID(int=7)
        self.is_internal = is_internal


def test_an_internal_stream_has_its_partition_in_the_shard_of_its_number() -> None:
    placement = SettablePlacement(64)
    inside, ordinary = _Topic(is_internal=True), _Topic(is_internal=False)

    assert [shard_of(inside, number, placement) for number in (0, 1, 63)] == [0, 1, 63]
    shards = {shard_of(ordinary, number, placement) for number in range(500)}
    assert shards == set(range(64))


def test_shards_are_runs_of_slots_and_stable() -> None:
    assert {shard_of_group("", f"group-{n}", 64) for n in range(1000)} == set(range(64))
    assert {shard_of_client("", f"client-{n}", 64) for n in range(1000)} == set(range(64))
    assert shard_of_group("a", "b", 64) != shard_of_group("", "ab", 64)
    for name in ("one", "two", "three"):  # half as many shards: two neighbours are one
        assert shard_of_group("ns", name, 64) // 2 == shard_of_group("ns", name, 32)
    assert shard_of_partition(UUID(int=1), 5, 1) == 0
    assert shard_of_partition(UUID(int=1), 5, SLOT_COUNT) // 16 == shard_of_partition(
        UUID(int=1), 5, 64
    )
