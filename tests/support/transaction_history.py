"""Rules of transactions that append to lists (those of Elle and of Jepsen's Kafka workloads).

A transaction appends values, each used once, to lists (partitions), and may have read some. Its
client says how it ended: committed, aborted, or unknown, when no answer came. The final lists are
what a reader of committed data finds at the end.

    aborted read      a value of an aborted transaction is in a list, or was read
    lost write        a value of a committed transaction is in no list
    torn              an unknown transaction has some of its values in the lists, not all
    double            a value is in the lists twice
    foreign value     a value that nobody has written
    order             values of one transaction, or of one producer, in another order in a list
    divergence        a reader has read something else than the final list has there
    cycle             transactions that have read from each other (G1c)
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

Value = str
List = str


class Outcome(Enum):
    """End of a transaction, as its client knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Attempt:
    """Transaction of a producer. ``writes`` and ``reads`` are (list, value) in order."""

    producer: str
    writes: list[tuple[List, Value]] = field(default_factory=list)
    reads: list[tuple[List, Value]] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN


def find_anomalies(
    attempts: Sequence[Attempt],
    final: Mapping[List, Sequence[Value]],
    observed: Iterable[Mapping[List, Sequence[Value]]] = (),
) -> list[str]:
    """Return what contradicts the rules; ``attempts`` are in order for each producer.

    ``observed``: for each reader, what it has read of lists from their begin on.
    """
    writers = {value: attempt for attempt in attempts for _, value in attempt.writes}
    found = _of_values(attempts, final, writers)
    found += _of_order(attempts, final)
    for reader in observed:
        for name, values in reader.items():
            if list(values) != list(final.get(name, ()))[: len(values)]:
                found.append(f"divergence: {name} read as {values}")
    found += _cycles(attempts, writers)
    return found


def _of_values(
    attempts: Sequence[Attempt],
    final: Mapping[List, Sequence[Value]],
    writers: Mapping[Value, Attempt],
) -> list[str]:
    places = Counter((name, value) for name, values in final.items() for value in values)
    found = [f"double: {name} {value}" for (name, value), count in places.items() if count > 1]
    found += [
        f"foreign value: {name} {value}" for name, value in places if value not in writers
    ]
    for attempt in attempts:
        present = [place for place in attempt.writes if place in places]
        if attempt.outcome is Outcome.ABORTED and present:
            found.append(f"aborted read: {present}")
        if attempt.outcome is Outcome.COMMITTED and len(present) < len(attempt.writes):
            found.append(f"lost write: {set(attempt.writes) - set(present)}")
        if attempt.outcome is Outcome.UNKNOWN and len(present) not in {0, len(attempt.writes)}:
            found.append(f"torn: {present} of {attempt.writes}")
        for name, value in attempt.reads:
            writer = writers.get(value)
            if writer is not None and writer.outcome is Outcome.ABORTED:
                found.append(f"aborted read: {name} {value}")
    return found


def _of_order(attempts: Sequence[Attempt], final: Mapping[List, Sequence[Value]]) -> list[str]:
    at = {(name, v): n for name, values in final.items() for n, v in enumerate(values)}
    by_producer: defaultdict[tuple[str, List], list[Value]] = defaultdict(list)
    for attempt in attempts:
        for name, value in attempt.writes:
            if (name, value) in at:
                by_producer[attempt.producer, name].append(value)
    found = []
    for (producer, name), values in by_producer.items():
        offsets = [at[name, value] for value in values]
        if offsets != sorted(offsets):
            found.append(f"order: {producer} in {name}: {values}")
    return found


def _cycles(attempts: Sequence[Attempt], writers: Mapping[Value, Attempt]) -> list[str]:
    """Find transactions that have read from each other, by removing those that have not."""
    sources: dict[int, set[int]] = {}
    for attempt in attempts:
        read_from = {id(writers[value]) for _, value in attempt.reads if value in writers}
        sources[id(attempt)] = read_from - {id(attempt)}
    is_smaller = True
    while is_smaller and sources:
        free = [one for one, read_from in sources.items() if not read_from & sources.keys()]
        is_smaller = bool(free)
        for one in free:
            del sources[one]
    return [f"cycle of {len(sources)} transactions"] if sources else []
