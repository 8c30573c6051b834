"""Kinds of findings of an audit, and whether they are errors."""

from collections.abc import Iterable
from typing import Final, NamedTuple

MISSING: Final = "missing"
DUPLICATE: Final = "duplicate"
DISORDER: Final = "disorder"
DAMAGED: Final = "damaged"
SEQUENCE_GAP: Final = "sequence-gap"
SEQUENCE_DUPLICATE: Final = "sequence-duplicate"
EPOCH_REGRESS: Final = "epoch-regress"
EPOCH_START: Final = "epoch-start"
COMMIT_BEYOND: Final = "commit-beyond-end"
LAKE_MISSING: Final = "lake-missing"
LAKE_DUPLICATE: Final = "lake-duplicate"
LAKE_UNKNOWN: Final = "lake-unknown"
LAKE_DIFFERENT: Final = "lake-different"
LAKE_AHEAD: Final = "lake-ahead"

# Information, not errors.
HOLES: Final = "holes"  # offsets that compaction or a delay has taken out
TIME_BACKWARDS: Final = "time-backwards"  # a batch's last timestamp is below an earlier one's
REMOVED_MEANWHILE: Final = (
    "removed-meanwhile"  # retention removed offsets before they were read
)
NOT_IN_LAKE: Final = "not-archived"  # offsets behind the table's position
COMPACTED_SINCE: Final = "compacted-since"  # rows of the table that compaction removed later
COMMIT_BELOW: Final = "commit-below-start"  # a group's committed offset below the start

WRONG: Final[dict[str, str]] = {
    MISSING: "offsets that no batch of the log has",
    DUPLICATE: "offsets that more than one batch has",
    DISORDER: "a base offset below that of the batch before it",
    DAMAGED: "a batch that contradicts itself or cannot be decoded",
    SEQUENCE_GAP: "an idempotent producer's sequences that are not there",
    SEQUENCE_DUPLICATE: "an idempotent producer's sequences that came again",
    EPOCH_REGRESS: "a producer's epoch below the one before",
    EPOCH_START: "a producer's new epoch that does not begin at sequence 0",
    COMMIT_BEYOND: "a group's committed offset above the end of the partition",
    LAKE_MISSING: "offsets that are archived by the table's position, and not in the table",
    LAKE_DUPLICATE: "offsets that are in the table more than once",
    LAKE_UNKNOWN: "offsets of the table that the log does not have",
    LAKE_DIFFERENT: "rows whose time, key, value or headers are others than in the log",
    LAKE_AHEAD: "rows or positions of the table beyond what the log or the position says",
}
LISTED_MAX: Final = 1_000  # findings kept of one kind, topic and partition; the rest is counted


class Finding(NamedTuple):
    """One finding about offsets ``first_offset`` to ``last_offset`` of a partition.

    ``total`` counts offsets, batches or rows, depending on the kind. ``example`` is for people.
    """

    kind: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    total: int
    example: str

    def as_row(self) -> dict[str, str | int]:
        """Return the finding as a row for display, ``total`` as ``count``."""
        row = self._asdict()
        row["count"] = row.pop("total")
        return row

    @property
    def is_wrong(self) -> bool:
        """Whether the finding is an error, and not only information."""
        return self.kind in WRONG


class Findings:
    """Findings in order of arrival, bounded for each kind and partition."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self._kept: dict[tuple[str, str, int], list[Finding]] = {}

    def add(self, found: Iterable[Finding]) -> None:
        """Add findings."""
        for one in found:
            self.totals[one.kind] = self.totals.get(one.kind, 0) + one.total
            kept = self._kept.setdefault((one.kind, one.topic, one.partition), [])
            if len(kept) < LISTED_MAX:
                kept.append(one)

    @property
    def is_clean(self) -> bool:
        """Whether there are no errors."""
        return not any(kind in WRONG for kind in self.totals)

    def listed(self) -> list[Finding]:
        """Return the kept findings: errors first, then by topic, partition and offset."""
        every = [one for kept in self._kept.values() for one in kept]
        return sorted(every, key=lambda one: (not one.is_wrong, *one[1:4], one.kind))
