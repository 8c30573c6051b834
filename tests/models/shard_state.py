"""State of the model of shards: the store, the memory of each node, the network.

Shard 0 is the source of transfers; the others are targets with one topic of one partition each.
All values are immutable, so that a state is its own key.
"""

from enum import IntEnum
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")

SOURCE = 0
"""The shard that transfers come from."""


class Mode(IntEnum):
    """The condition of a node's process."""

    DOWN = 0
    RUNNING = 1
    PAUSED = 2


class Status(IntEnum):
    """The fate of a commit that its node may not have heard of yet."""

    IN_FLIGHT = 0
    STORED = 1
    REFUSED = 2


class Operation(NamedTuple):
    """One request of the publisher: a transfer by way of the source shard, or a direct append."""

    is_transfer: bool
    targets: tuple[int, ...]


class Intent(NamedTuple):
    """A journaled transfer: the operation, and its number with each target in another log."""

    operation: int
    parts: tuple[tuple[int, int], ...]


class Record(NamedTuple):
    """One record of a commit. ``kind`` is intent, end, entry, skip, delete or flip.

    ``at`` is the offset that the owner has assigned (entry), the index in the journal (intent,
    end), or the next owner (flip). ``number`` is the transfer's number, 0 for a direct append;
    ``sender`` the node to answer.
    """

    kind: str
    shard: int
    epoch: int
    at: int = 0
    operation: int = -1
    number: int = 0
    sender: int = -1
    parts: tuple[tuple[int, int], ...] = ()


class Commit(NamedTuple):
    """Records that one writer stores atomically: the append of one log."""

    writer: int
    records: tuple[Record, ...]
    status: Status = Status.IN_FLIGHT


class Memory(NamedTuple):
    """Memory of an owner about one shard; what ``is_sure`` fields count is durable."""

    epoch: int
    sealed: bool = False
    # As a source:
    intents: tuple[Intent, ...] = ()
    intents_sure: int = 0
    next_numbers: tuple[int, ...] = ()
    answered: frozenset[tuple[int, int]] = frozenset()  # (index of the intent, target)
    ended: frozenset[int] = frozenset()
    # As a target:
    next_offset: int = 0
    applied: int = 0
    applied_sure: int = 0
    is_live: bool = True


class Node(NamedTuple):
    """A process: its number as a writer, the shards it believes its own, its commits in order."""

    mode: Mode
    writer: int
    held: tuple[Memory | None, ...]
    commits: tuple[Commit, ...] = ()


class Entry(NamedTuple):
    """A stored message, and the epoch and writer that it was appended by."""

    operation: int
    epoch: int
    writer: tuple[int, int]


class Store(NamedTuple):
    """Durable state of the cluster: owners, epochs, writers, logs and the source's journal."""

    owner: tuple[int, ...]
    epoch: tuple[int, ...]
    writer: tuple[int, ...]
    logs: tuple[tuple[Entry, ...], ...]
    applied: tuple[int, ...]
    live: tuple[bool, ...]
    intents: tuple[Intent, ...] = ()
    ended: frozenset[int] = frozenset()
    problem: str = ""


class Frame(NamedTuple):
    """A message between nodes: transfer, done, or direct. It may come late, or never."""

    kind: str
    sender: int
    receiver: int
    shard: int
    epoch: int
    operation: int
    number: int = 0


class Faults(NamedTuple):
    """Counts of the faults that may still happen."""

    moves: int = 0
    crashes: int = 0
    pauses: int = 0
    deletes: int = 0


class World(NamedTuple):
    """One state of the model."""

    store: Store
    nodes: tuple[Node, ...]
    network: frozenset[Frame]
    issued: int
    results: tuple[str, ...]  # "", "ok", "refused" or "unknown" for each operation
    faults: Faults


def changed(items: tuple[Item, ...], index: int, item: Item) -> tuple[Item, ...]:
    """Return the items with one replaced."""
    return (*items[:index], item, *items[index + 1 :])


def with_node(world: World, number: int, node: Node) -> World:
    """Return the world with one node replaced."""
    return world._replace(nodes=changed(world.nodes, number, node))


def with_memory(node: Node, shard: int, memory: Memory | None) -> Node:
    """Return the node with its memory of one shard replaced."""
    return node._replace(held=changed(node.held, shard, memory))


def initial(owners: tuple[int, ...], operations: int, faults: Faults) -> World:
    """Return a world of two or more nodes whose shards have these owners, all loaded."""
    count = len(owners)
    nodes_count = max(2, max(owners) + 1)
    store = Store(
        owner=owners,
        epoch=(1,) * count,
        writer=(1,) * nodes_count,
        logs=((),) * count,
        applied=(0,) * count,
        live=(True,) * count,
    )
    nodes = tuple(
        Node(
            Mode.RUNNING,
            1,
            tuple(
                loaded(store, shard) if owner == n else None
                for shard, owner in enumerate(owners)
            ),
        )
        for n in range(nodes_count)
    )
    return World(store, nodes, frozenset(), 0, ("",) * operations, faults)


def loaded(store: Store, shard: int) -> Memory:
    """Return the memory of an owner that has just loaded a shard from what is stored."""
    if shard != SOURCE:
        return Memory(
            store.epoch[shard],
            next_offset=len(store.logs[shard]),
            applied=store.applied[shard],
            applied_sure=store.applied[shard],
            is_live=store.live[shard],
        )
    numbers = [1] * len(store.owner)
    for intent in store.intents:
        for target, number in intent.parts:
            numbers[target] = number + 1
    return Memory(
        store.epoch[shard],
        intents=store.intents,
        intents_sure=len(store.intents),
        next_numbers=tuple(numbers),
        ended=store.ended,
    )
