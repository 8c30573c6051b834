"""Steps of the model of shards: requests, transfers, moves and faults, each atomic by itself."""

from collections.abc import Iterator

from tests.models.shard_commits import done, enqueue, give, notice, stop, stored
from tests.models.shard_state import (
    SOURCE,
    Commit,
    Frame,
    Intent,
    Memory,
    Mode,
    Node,
    Operation,
    Record,
    Status,
    World,
    changed,
    loaded,
    with_memory,
    with_node,
)

Step = tuple[str, World]


class Steps:
    """All steps from a state. ``broken`` names the rules that this variant does not keep."""

    def __init__(self, operations: tuple[Operation, ...], broken: frozenset[str]) -> None:
        self.operations = operations
        self.broken = broken

    def __call__(self, world: World) -> Iterator[Step]:
        """Yield every step that may come next."""
        if world.issued < len(self.operations):
            yield from self._issue(world)
        if "unknown repeated" in self.broken:
            yield from self._repeat(world)
        for frame in world.network:
            if world.nodes[frame.receiver].mode is Mode.RUNNING:
                yield f"{frame} arrives", self._arrive(world, frame)
        for number, node in enumerate(world.nodes):
            yield from self._store(world, number, node)
            if node.mode is Mode.RUNNING:
                yield from self._send(world, number, node)
                yield from self._take(world, number, node)
            yield from self._faults(world, number, node)
            yield from self._recover(world, number, node)

    # Requests of the publisher.

    def _issue(self, world: World) -> Iterator[Step]:
        before = self.operations[: world.issued]
        if any(
            not one.is_transfer and not result
            for one, result in zip(before, world.results, strict=False)
        ):
            return  # rule 11
        operation = self.operations[world.issued]
        if not operation.is_transfer:
            yield from self._issue_direct(world, operation.targets[0])
            return
        for number in _sources(world):
            after = self._publish(world, number, world.issued)
            after = after._replace(issued=world.issued + 1)
            yield f"node {number} takes operation {world.issued}", after

    def _repeat(self, world: World) -> Iterator[Step]:
        """Yield the mistake of a client: what is unknown is sent as if it had failed."""
        for operation, result in enumerate(world.results):
            for number in _sources(world) if result == "unknown" else ():
                after = self._publish(world, number, operation)
                results = changed(world.results, operation, "")
                yield f"operation {operation} is repeated", after._replace(results=results)

    def _issue_direct(self, world: World, target: int) -> Iterator[Step]:
        owner = world.nodes[world.store.owner[SOURCE]]
        memory = owner.held[SOURCE]
        if owner.mode is not Mode.RUNNING or memory is None:
            return
        if _is_open(memory, target) and "direct overtakes" not in self.broken:
            return
        receiver = world.store.owner[target]
        frame = Frame("direct", -1, receiver, target, world.store.epoch[target], world.issued)
        yield (
            f"direct append {world.issued} is sent to node {receiver}",
            world._replace(network=world.network | {frame}, issued=world.issued + 1),
        )

    def _publish(self, world: World, number: int, operation: int) -> World:
        node = world.nodes[number]
        source = node.held[SOURCE]
        assert source is not None
        records, parts = [], []
        numbers = source.next_numbers
        for target in self.operations[operation].targets:
            memory = node.held[target]
            is_free = not _is_open(source, target) or "local append overtakes" in self.broken
            if memory is not None and not memory.sealed and memory.is_live and is_free:
                records.append(
                    Record("entry", target, memory.epoch, memory.next_offset, operation)
                )
                memory = memory._replace(next_offset=memory.next_offset + 1)
                node = with_memory(node, target, memory)
            else:
                parts.append((target, numbers[target]))
                numbers = changed(numbers, target, numbers[target] + 1)
        if parts:
            journal = source.intents
            at = len(journal)
            records.append(
                Record("intent", SOURCE, source.epoch, at, operation, parts=tuple(parts))
            )
            intent = Intent(operation, tuple(parts))
            source = source._replace(intents=(*journal, intent), next_numbers=numbers)
            node = with_memory(node, SOURCE, source)
        world = with_node(world, number, enqueue(node, *records))
        if "acknowledged when enqueued" in self.broken:
            world = world._replace(results=changed(world.results, operation, "ok"))
        return world

    # Commits.

    def _store(self, world: World, number: int, node: Node) -> Iterator[Step]:
        if node.mode is Mode.RUNNING and node.commits and node.commits[0].status:
            yield f"node {number} learns of a commit", notice(world, number, self.broken)
        waiting = [
            index for index, one in enumerate(node.commits) if one.status is Status.IN_FLIGHT
        ]
        if waiting:
            yield self._store_one(world, number, node, waiting[0])

    def _store_one(self, world: World, number: int, node: Node, index: int) -> Step:
        commit = node.commits[index]
        is_own = world.store.writer[number] == commit.writer
        if is_own or "writer not checked" in self.broken:
            world = world._replace(store=stored(world.store, number, commit, self.broken))
            status, name = Status.STORED, "stored"
        else:
            status, name = Status.REFUSED, "refused"
        kinds = "+".join(record.kind for record in commit.records)
        name = f"commit {kinds} of node {number} is {name}"
        if node.mode is Mode.DOWN or node.writer != commit.writer:
            left = (*node.commits[:index], *node.commits[index + 1 :])
            return name, with_node(world, number, node._replace(commits=left))
        commits = changed(node.commits, index, commit._replace(status=status))
        world = with_node(world, number, node._replace(commits=commits))
        if node.mode is Mode.RUNNING and index == 0:
            world = notice(world, number, self.broken)
        return name, world

    # Transfers.

    def _send(self, world: World, number: int, node: Node) -> Iterator[Step]:
        memory = node.held[SOURCE]
        if memory is None or memory.sealed:
            return
        count = memory.intents_sure
        if "sent before durable" in self.broken:
            count = len(memory.intents)
        for index, intent in enumerate(memory.intents[:count]):
            for target, transfer in intent.parts:
                if index in memory.ended or (index, target) in memory.answered:
                    continue
                receiver, epoch = world.store.owner[target], world.store.epoch[target]
                frame = Frame(
                    "transfer", number, receiver, target, epoch, intent.operation, transfer
                )
                if frame not in world.network:
                    network = world.network | {frame}
                    name = f"node {number} sends {transfer} of {target} to node {receiver}"
                    yield name, world._replace(network=network)

    def _arrive(self, world: World, frame: Frame) -> World:
        world = world._replace(network=world.network - {frame})
        if frame.kind == "done":
            return self._take_answer(world, frame)
        memory = world.nodes[frame.receiver].held[frame.shard]
        if memory is None or memory.sealed or memory.epoch != frame.epoch:
            usable = "serves after the flip" in self.broken and memory is not None
            if not usable or memory is None:
                return _refuse(world, frame)
        if frame.kind == "direct":
            return _append_direct(world, frame, memory)
        return self._apply(world, frame, memory)

    def _apply(self, world: World, frame: Frame, memory: Memory) -> World:
        node = world.nodes[frame.receiver]
        record = Record(
            "entry",
            frame.shard,
            memory.epoch,
            memory.next_offset,
            frame.operation,
            frame.number,
            frame.sender,
        )
        reply = done(record, frame.receiver)
        is_again = frame.number <= memory.applied and "numbers not compared" not in self.broken
        if is_again:
            is_sure = frame.number <= memory.applied_sure
            if is_sure or "pending double answered" in self.broken:
                return world._replace(network=world.network | {reply})
            return world
        if frame.number > memory.applied + 1 and "gaps accepted" not in self.broken:
            return world
        if memory.is_live or "deleted topic written" in self.broken:
            memory = memory._replace(next_offset=memory.next_offset + 1)
        elif "deleted topic refused" in self.broken:
            return world
        else:
            record = record._replace(kind="skip")
        node = with_memory(node, frame.shard, memory._replace(applied=frame.number))
        world = with_node(world, frame.receiver, enqueue(node, record))
        if "answered when enqueued" in self.broken:
            return world._replace(network=world.network | {reply})
        return world

    def _take_answer(self, world: World, frame: Frame) -> World:
        node = world.nodes[frame.receiver]
        memory = node.held[SOURCE]
        if memory is None or memory.sealed:
            return world
        part = frame.shard, frame.number
        for index, intent in enumerate(memory.intents):
            if part in intent.parts and index not in memory.ended:
                answered = memory.answered | {(index, frame.shard)}
                is_all = all((index, target) in answered for target, _ in intent.parts)
                memory = memory._replace(answered=answered)
                if is_all or "ended after the first effect" in self.broken:
                    memory = memory._replace(ended=memory.ended | {index})
                    node = enqueue(node, Record("end", SOURCE, memory.epoch, index))
        return with_node(world, frame.receiver, with_memory(node, SOURCE, memory))

    # Owners.

    def _take(self, world: World, number: int, node: Node) -> Iterator[Step]:
        for shard, owner in enumerate(world.store.owner):
            if owner == number and node.held[shard] is None:
                memory = self._loaded(world, shard)
                after = with_node(world, number, with_memory(node, shard, memory))
                yield f"node {number} loads shard {shard}", after

    def _loaded(self, world: World, shard: int) -> Memory:
        memory = loaded(world.store, shard)
        if shard == SOURCE and "numbers start anew" in self.broken:
            memory = memory._replace(next_numbers=(1,) * len(world.store.owner))
        if shard == SOURCE and "open intents forgotten" in self.broken:
            memory = memory._replace(ended=frozenset(range(len(memory.intents))))
        return memory

    def _faults(self, world: World, number: int, node: Node) -> Iterator[Step]:
        faults = world.faults
        if node.mode is Mode.RUNNING and faults.pauses:
            left = world._replace(faults=faults._replace(pauses=faults.pauses - 1))
            paused = node._replace(mode=Mode.PAUSED)
            yield f"node {number} is paused", with_node(left, number, paused)
        if node.mode is not Mode.DOWN and faults.crashes:
            left = world._replace(faults=faults._replace(crashes=faults.crashes - 1))
            yield f"node {number} crashes", stop(left, number)
        if node.mode is Mode.RUNNING and faults.deletes:
            yield from self._delete(world, number, node)
        if node.mode is Mode.RUNNING and faults.moves:
            yield from self._release(world, number, node)

    def _delete(self, world: World, number: int, node: Node) -> Iterator[Step]:
        memory = node.held[1]
        if memory is None or memory.sealed or not memory.is_live:
            return
        node = with_memory(node, 1, memory._replace(is_live=False))
        node = enqueue(node, Record("delete", 1, memory.epoch))
        world = with_node(world, number, node)
        deletes = world.faults.deletes - 1
        world = world._replace(faults=world.faults._replace(deletes=deletes))
        yield f"node {number} deletes the topic of shard 1", world

    def _release(self, world: World, number: int, node: Node) -> Iterator[Step]:
        left = world._replace(faults=world.faults._replace(moves=world.faults.moves - 1))
        for shard, memory in enumerate(node.held):
            if memory is None or memory.sealed:
                continue
            flips = Record("flip", shard, memory.epoch)
            sealed = memory._replace(sealed="not sealed" not in self.broken)
            for other in range(len(world.nodes)):
                if other == number:
                    continue
                releasing = self._flip(
                    with_memory(node, shard, sealed), flips._replace(at=other)
                )
                after = with_node(left, number, releasing)
                target = after.nodes[other]
                if "loaded before the flip" in self.broken and target.held[shard] is None:
                    early = loaded(world.store, shard)._replace(epoch=memory.epoch + 1)
                    after = with_node(after, other, with_memory(target, shard, early))
                yield f"node {number} releases shard {shard} to node {other}", after

    def _flip(self, node: Node, flip: Record) -> Node:
        if "flipped before drained" in self.broken:
            return node._replace(commits=(Commit(node.writer, (flip,)), *node.commits))
        return enqueue(node, flip)

    def _recover(self, world: World, number: int, node: Node) -> Iterator[Step]:
        if node.mode is Mode.PAUSED:
            running = node._replace(mode=Mode.RUNNING)
            yield f"node {number} wakes", with_node(world, number, running)
        store = world.store
        if node.mode is Mode.RUNNING:
            if node.writer != store.writer[number] and "fenced node goes on" not in self.broken:
                yield f"node {number} learns that it is fenced", stop(world, number)
            return
        fenced = store._replace(writer=changed(store.writer, number, store.writer[number] + 1))
        own = [shard for shard, owner in enumerate(store.owner) if owner == number]
        for other, target in enumerate(world.nodes):
            if not own or target.mode is not Mode.RUNNING or other == number:
                continue
            after = store if "dead source not fenced" in self.broken else fenced
            for shard in own:
                after = give(after, shard, other)
            name = f"node {other} is given the shards of node {number}"
            yield name, world._replace(store=after)
        if node.mode is Mode.DOWN:
            restarted = node._replace(mode=Mode.RUNNING, writer=fenced.writer[number])
            for shard in own if "restart keeps the epoch" not in self.broken else ():
                fenced = give(fenced, shard, number)
            after_restart = with_node(world, number, restarted)._replace(store=fenced)
            yield f"node {number} starts again", after_restart


def _sources(world: World) -> Iterator[int]:
    """Yield the nodes that believe the source shard their own and take requests for it."""
    for number, node in enumerate(world.nodes):
        memory = node.held[SOURCE]
        if node.mode is Mode.RUNNING and memory is not None and not memory.sealed:
            yield number


def _is_open(source: Memory, target: int) -> bool:
    """Say whether a transfer to a target is not yet known to be applied."""
    return any(
        index not in source.ended and (index, part) not in source.answered and part == target
        for index, intent in enumerate(source.intents)
        for part, _ in intent.parts
    )


def _refuse(world: World, frame: Frame) -> World:
    if frame.kind == "direct" and not world.results[frame.operation]:
        return world._replace(results=changed(world.results, frame.operation, "refused"))
    return world


def _append_direct(world: World, frame: Frame, memory: Memory) -> World:
    if not memory.is_live:
        return _refuse(world, frame)
    record = Record("entry", frame.shard, memory.epoch, memory.next_offset, frame.operation)
    node = world.nodes[frame.receiver]
    memory = memory._replace(next_offset=memory.next_offset + 1)
    node = enqueue(with_memory(node, frame.shard, memory), record)
    return with_node(world, frame.receiver, node)
