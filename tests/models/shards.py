"""Model of shards: their owners and epochs, and transfers from one log to another.

A shard has one owner; a log is the storage of one writer and holds many shards; a commit is atomic
within one log. A transfer takes an operation from its source shard to targets in other logs. The
rules, as ``gateway/transfer.py`` and the life cycle of shards must keep them:

Owners

1. A writer is one run of a node and has a number of its own. A commit is stored only while its
   writer is the recorded one, and the check is part of the commit. No clock takes part.
2. Each change of a shard's owner raises the shard's epoch, a restart of the same node included:
   the node starts as the next writer and takes its shards in new epochs.
3. A release seals the shard first: nothing new is enqueued for it. What has been enqueued drains,
   and the last commit changes the owner and the epoch. After it the node serves the shard no more.
4. A dead or paused owner is fenced (its writer's number raised) before its shards get owners. A
   node that finds itself fenced drops the memory of all its shards and starts as the next writer:
   else a shard that comes back to it would meet what it remembers of an earlier epoch.
5. A new owner loads a shard from what is stored, after the change of owner and never before.
6. A request for a shard carries the shard's epoch. A node that does not own the shard in this
   epoch, or has sealed it, refuses.

Transfers

7. Effects in the source's own log are one append, as long as no earlier transfer to their target
   is open. All other effects are an intent: journaled with its payload, in the same append as the
   local effects. The operation is acknowledged when this append is durable.
8. Each part of an intent has the next number of its (source shard, target shard). A new owner goes
   on after the highest number in the journal, ended intents included.
9. A part is sent only after its intent is durable, to the target's owner of the moment, and again
   until it is answered. A target that has moved into the source's log is sent to in the same way,
   with the number. A new owner of the source sends every intent that has no end in the journal.
10. A target stores the number in the same append as the effect. It applies exactly the next
    number. It answers a lower one without a second effect, but only once the first is durable; it
    ignores a higher one, which will be sent again. It answers its own append once it is durable.
11. A direct append of a publisher waits until none of its transfers to this target is open, as the
    source's owner knows them. A publisher's next request waits until its direct append is answered.
12. The source journals the end when every part is answered.
13. A target whose topic is deleted stores the number alone and answers as if applied: later
    numbers must not wait for it.
14. A request without an answer is *unknown*: it may be stored still. Only a commit that was
    refused for its writer has surely failed. Nobody repeats what is unknown as a new request.

An owner of both ends may write the effect without the network, but not without the number: the
sender may have been another log's a moment ago.

What is checked in each state: offsets without gaps; an epoch appends by one writer, and never
after a later one; nothing is applied twice; every effect of what is acknowledged or journaled is
there or still to be sent; what was refused is not there; the operations of the publisher are in
order in each target (unknown ones apart); nothing is written to a deleted topic. From each state
there is a way to one where all operations are answered and all transfers have ended.

Not in the model: a commit whose answer is lost on the way to a live writer (the storage looks it
up before it says anything), more than one publisher, and reads.
"""

from collections import Counter
from functools import partial

from tests.models.checker import Found, Model, check
from tests.models.shard_state import SOURCE, Faults, Operation, World, initial
from tests.models.shard_steps import Steps


def broken(world: World, operations: tuple[Operation, ...]) -> str:
    """Return the first broken invariant in words, or an empty string."""
    return (
        world.store.problem
        or _two_owners(world)
        or _twice(world)
        or _lost(world, operations)
        or _refused_but_done(world)
        or _out_of_order(world)
    )


def check_shards(
    owners: tuple[int, ...],
    operations: tuple[Operation, ...],
    faults: Faults,
    *,
    broken_rules: tuple[str, ...] = (),
    states_max: int,
) -> Found:
    """Check the model; ``broken_rules`` are the rules that the variant does not keep."""
    model = Model(
        initial(owners, len(operations), faults),
        Steps(operations, frozenset(broken_rules)),
        partial(broken, operations=operations),
        _is_settled,
    )
    return check(model, states_max=states_max)


def _is_settled(world: World) -> bool:
    """Say whether every operation is answered and every stored transfer has ended."""
    return all(world.results) and len(world.store.ended) == len(world.store.intents)


def _lost(world: World, operations: tuple[Operation, ...]) -> str:
    """Find an acknowledged operation, or a stored intent, with an effect that can never be."""
    store = world.store
    promised = {number for number, result in enumerate(world.results) if result == "ok"}
    promised.update(intent.operation for intent in store.intents)
    waiting = {
        (intent.operation, target)
        for index, intent in enumerate(store.intents)
        for target, number in intent.parts
        if index not in store.ended and number > store.applied[target]
    }
    for number in sorted(promised):
        for target in operations[number].targets:
            is_there = any(entry.operation == number for entry in store.logs[target])
            if store.live[target] and not is_there and (number, target) not in waiting:
                return f"operation {number} is lost in shard {target}"
    return ""


def _refused_but_done(world: World) -> str:
    for number, result in enumerate(world.results):
        if result == "refused" and any(
            entry.operation == number for log in world.store.logs for entry in log
        ):
            return f"operation {number} was refused, and is done"
    return ""


def _twice(world: World) -> str:
    for shard, log in enumerate(world.store.logs):
        counts = Counter(entry.operation for entry in log)
        for number, count in counts.items():
            if count > 1:
                return f"operation {number} is applied {count} times in shard {shard}"
    return ""


def _two_owners(world: World) -> str:
    for shard, log in enumerate(world.store.logs):
        writers: dict[int, tuple[int, int]] = {}
        last = 0
        for entry in log:
            if entry.epoch < last:
                return f"epoch {entry.epoch} of shard {shard} appends after epoch {last}"
            last = entry.epoch
            if writers.setdefault(entry.epoch, entry.writer) != entry.writer:
                return f"two writers append to shard {shard} in epoch {entry.epoch}"
    return ""


def _out_of_order(world: World) -> str:
    for shard, log in enumerate(world.store.logs):
        known = [
            entry.operation for entry in log if world.results[entry.operation] != "unknown"
        ]
        if shard != SOURCE and known != sorted(known):
            return f"shard {shard} has the publisher's operations as {known}"
    return ""
