"""Outputs of a merge round: the content and the footer of each object.

Pure. Tests of recovery drive the same functions as the merger.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from storage_adapters.formats.log_ranges import LOG_SHIFT
from storage_adapters.s3.merge_plan import Grouping, PartRun
from storage_adapters.s3.state import KIND_LOG, StoredObject


class PlannedObject(NamedTuple):
    """A merged object to be built: its content, and the partitions of its footer."""

    runs: list[PartRun]
    told_ids: set[int]
    sequences: tuple[int, int]


def merge_objects(
    grouping: Grouping, inputs: Sequence[StoredObject], footer_ids: Collection[int]
) -> list[PlannedObject]:
    """Plan the objects that a round makes of ``inputs``: own ones first, the shared one last.

    ``footer_ids`` are the partitions in the inputs' footers, which the new footers repeat.
    """
    first, last = inputs[0].first_sequence, inputs[-1].next_sequence
    made = [
        PlannedObject(runs, {run.partition_id for run in runs}, (last, last))
        for runs in grouping.own
    ]
    told = set(footer_ids).difference(*[planned.told_ids for planned in made])
    told.update([run.partition_id for run in grouping.shared])
    return [*made, PlannedObject(grouping.shared, told, (first, last))]


def note_object(
    objects: Iterable[StoredObject],
    dead: Iterable[StoredObject],
    untold: Iterable[int],
    *,
    log: int = 0,
) -> PlannedObject | None:
    """Return the note that replaces ``dead`` own objects and records ``untold`` partitions.

    ``objects``: those of the log. None when there is nothing to record.
    """
    told = set(untold).union(*[o.partition_ids for o in dead])
    merged = [o.next_sequence for o in objects if o.kind != KIND_LOG]
    upto = max(merged, default=log << LOG_SHIFT)
    return PlannedObject([], told, (upto, upto)) if told else None
