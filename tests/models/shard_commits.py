"""Commits in the model of shards: storing one, and its node's reaction to the result."""

from tests.models.shard_state import (
    SOURCE,
    Commit,
    Entry,
    Frame,
    Intent,
    Mode,
    Node,
    Record,
    Status,
    Store,
    World,
    changed,
    with_memory,
    with_node,
)


def enqueue(node: Node, *records: Record) -> Node:
    """Return the node with one more commit on its way."""
    return node._replace(commits=(*node.commits, Commit(node.writer, records)))


def stored(store: Store, number: int, commit: Commit, broken: frozenset[str]) -> Store:
    """Return the store with a commit of node ``number`` applied, all of it at once."""
    for record in commit.records:
        store = _RULES[record.kind](store, record, (number, commit.writer), broken)
    return store


def _store_entry(
    store: Store, record: Record, writer: tuple[int, int], broken: frozenset[str]
) -> Store:
    log = store.logs[record.shard]
    if record.at != len(log):
        store = store._replace(problem=f"offset {record.at} after {len(log)} records")
    if not store.live[record.shard]:
        store = store._replace(problem="a record in a deleted topic")
    entry = Entry(record.operation, record.epoch, writer)
    store = store._replace(logs=changed(store.logs, record.shard, (*log, entry)))
    if record.number and "number apart from append" not in broken:
        store = _store_skip(store, record, writer, broken)
    return store


def _store_skip(store: Store, record: Record, _: tuple[int, int], __: frozenset[str]) -> Store:
    return store._replace(applied=changed(store.applied, record.shard, record.number))


def _store_intent(
    store: Store, record: Record, writer: tuple[int, int], _: frozenset[str]
) -> Store:
    if record.at != len(store.intents):
        store = store._replace(problem=f"intent {record.at} after {len(store.intents)}")
    journal = (*store.logs[SOURCE], Entry(record.operation, record.epoch, writer))
    intent = Intent(record.operation, record.parts)
    return store._replace(
        intents=(*store.intents, intent), logs=changed(store.logs, SOURCE, journal)
    )


def _store_end(store: Store, record: Record, _: tuple[int, int], __: frozenset[str]) -> Store:
    return store._replace(ended=store.ended | {record.at})


def _store_delete(
    store: Store, record: Record, _: tuple[int, int], __: frozenset[str]
) -> Store:
    is_live = False
    return store._replace(live=changed(store.live, record.shard, is_live))


def _store_flip(store: Store, record: Record, _: tuple[int, int], __: frozenset[str]) -> Store:
    return give(store, record.shard, record.at)


_RULES = {
    "entry": _store_entry,
    "skip": _store_skip,
    "intent": _store_intent,
    "end": _store_end,
    "delete": _store_delete,
    "flip": _store_flip,
}


def give(store: Store, shard: int, owner: int) -> Store:
    """Return the store with a shard given to an owner, in its next epoch."""
    return store._replace(
        owner=changed(store.owner, shard, owner),
        epoch=changed(store.epoch, shard, store.epoch[shard] + 1),
    )


def notice(world: World, number: int, broken: frozenset[str]) -> World:
    """Process the result of a running node's first commit: answer, and go on."""
    node = world.nodes[number]
    commit = node.commits[0]
    node = node._replace(commits=node.commits[1:])
    if commit.status is Status.REFUSED:  # fenced: another is the owner by now
        world = answer(with_node(world, number, node), commit, "refused")
        return stop(world, number)
    world = answer(world, commit, "ok")
    for record in commit.records:
        node, frame = _noticed(node, number, record, broken)
        if frame is not None and "answered when enqueued" not in broken:
            world = world._replace(network=world.network | {frame})
    return with_node(world, number, node)


def _noticed(
    node: Node, number: int, record: Record, broken: frozenset[str]
) -> tuple[Node, Frame | None]:
    memory = node.held[record.shard]
    if memory is None:
        return node, None
    if record.kind == "flip":
        if "serves after the flip" in broken:
            return with_memory(node, record.shard, memory._replace(sealed=False)), None
        return with_memory(node, record.shard, None), None
    if record.kind == "intent":
        memory = memory._replace(intents_sure=record.at + 1)
    if record.number:
        memory = memory._replace(applied_sure=record.number)
    node = with_memory(node, record.shard, memory)
    return node, done(record, number) if record.number else None


def done(record: Record, number: int) -> Frame:
    """Return the answer to a transfer that is applied."""
    return Frame(
        "done", number, record.sender, record.shard, 0, record.operation, record.number
    )


def answer(world: World, commit: Commit, result: str) -> World:
    """Return the world with the publisher's operations in a commit answered."""
    results = list(world.results)
    for record in commit.records:
        is_first = record.kind == "intent" or (record.kind == "entry" and not record.number)
        if is_first and not results[record.operation]:
            results[record.operation] = result
    return world._replace(results=tuple(results))


def stop(world: World, number: int) -> World:
    """Take a node's memory away. What it has on its way may still be stored, or not."""
    node = world.nodes[number]
    for commit in node.commits:
        world = answer(world, commit, "unknown")
    nothing = (None,) * len(node.held)
    return with_node(world, number, node._replace(mode=Mode.DOWN, held=nothing))
