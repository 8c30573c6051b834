"""Sequences of idempotent producers (KIP-98) in the headers of stored batches.

Per producer id and partition: sequences are consecutive, 0 after 2^31 - 1; a new epoch begins at 0;
an epoch never goes back. An unknown producer may begin anywhere, since retention removes older
batches. Where compaction removed whole batches, sequences jump with the offsets.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.audit import findings as kinds

Ints = npt.NDArray[np.int64]

SEQUENCE_MODULUS: Final = 1 << 31
FINDINGS_MAX: Final = 1_000

Wrong = tuple[str, int, int, int, str]  # kind, first and last offset, count, example


class Mark(NamedTuple):
    """One batch of a producer. ``holes_before``: allowed gaps of offsets before it."""

    epoch: int
    sequence: int
    records: int
    base_offset: int
    holes_before: int

    @property
    def next_sequence(self) -> int:
        """Next expected sequence."""
        return (self.sequence + self.records) % SEQUENCE_MODULUS


class ProducerSpan(NamedTuple):
    """A producer's first and last batch in a file."""

    producer_id: int
    first: Mark
    last: Mark


def producer_spans(  # noqa: PLR0917 - columns of one table
    producer_id: Ints, epoch: Ints, sequence: Ints, count: Ints, base: Ints, holes: Ints
) -> tuple[list[ProducerSpan], list[Wrong]]:
    """Return the producers of batches in stored order, and the errors found."""
    having = np.flatnonzero(producer_id >= 0)
    order = having[np.argsort(producer_id[having], kind="stable")]
    if not len(order):
        return [], []
    ids = producer_id[order]
    table = np.stack(
        [column[order] for column in (epoch, sequence, count, base, holes)], axis=1
    )
    follows = (table[:, 1] + table[:, 2]) % SEQUENCE_MODULUS
    is_same = ids[1:] == ids[:-1]
    in_order = (table[1:, 0] == table[:-1, 0]) & (table[1:, 1] == follows[:-1])
    wrong: list[Wrong] = []
    for at in np.flatnonzero(is_same & ~in_order).tolist():
        before, after = Mark(*table[at].tolist()), Mark(*table[at + 1].tolist())
        found = judge(int(ids[at]), before, after)
        if found is not None and len(wrong) < FINDINGS_MAX:
            wrong.append(found)
    begins = np.flatnonzero(np.append(True, ~is_same))
    ends = np.append(begins[1:], len(ids)) - 1
    spans = [
        ProducerSpan(int(ids[one]), Mark(*table[one].tolist()), Mark(*table[end].tolist()))
        for one, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
    return spans, wrong


def judge(producer_id: int, before: Mark, after: Mark) -> Wrong | None:
    """Return the errors between two consecutive batches of a producer."""
    who = f"producer {producer_id}, epoch {after.epoch}"
    if after.epoch == before.epoch:
        return _judge_sequence(who, before, after)
    offset = after.base_offset
    if after.epoch < before.epoch:
        text = f"{who}: epoch {before.epoch} came before"
        return kinds.EPOCH_REGRESS, offset, offset, 1, text
    if after.sequence == 0 or after.holes_before > before.holes_before:
        return None
    text = f"{who}: begins at sequence {after.sequence}"
    return kinds.EPOCH_START, offset, offset, 1, text


def _judge_sequence(who: str, before: Mark, after: Mark) -> Wrong | None:
    due, sequence = before.next_sequence, after.sequence
    ahead = (sequence - due) % SEQUENCE_MODULUS
    if ahead == 0:
        return None
    offset = after.base_offset
    if ahead >= SEQUENCE_MODULUS // 2:
        again = min(SEQUENCE_MODULUS - ahead, after.records)
        text = f"{who}: sequence {sequence} again, {due} was to come"
        return kinds.SEQUENCE_DUPLICATE, offset, offset, again, text
    if after.holes_before > before.holes_before:
        return None
    text = f"{who}: sequence {sequence} came, {due} was to come"
    return kinds.SEQUENCE_GAP, before.base_offset + before.records, offset, ahead, text
