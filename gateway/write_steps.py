"""Steps of the write path: decisions on records between their checks and their append.

A step gets the records that are to be appended to a partition, and may hold some of them back:
the delay step stores records whose time has not come in ``__delays``. What it holds is appended in
their place, in the same append. Steps are asked in the order of ``Broker.write_steps``, and only
where there is a reason: for topics with ``TopicSettings.has_write_steps``, and for runs that say
themselves when they are to be delivered.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, NamedTuple, Protocol

from gateway.errors import GatewayError, StorageUnavailable, as_value
from gateway.partition import Partition, Write
from gateway.records.record_run import Run
from gateway.storage import OnDone


class Held(Protocol):
    """Records that a step holds back, as what is appended in their place."""

    @property
    def writes(self) -> Sequence[Write]:
        """Writes in place of the records of a batch."""
        ...

    @property
    def part(self) -> tuple[Partition, Run] | None:
        """Part of an append in place of a run; None for the records of a batch."""
        ...

    def done(self, error: GatewayError | None) -> None:
        """Report the outcome of the append, once, or the error that prevented it."""
        ...


class BatchSplit(NamedTuple):
    """Records of a batch that are appended at once, None without any, and those held back.

    ``hold`` is called once, when the append begins, or never, if there is none.
    """

    now: Write | None
    hold: Callable[[], Held]


class WriteStep(Protocol):
    """Step of the write path. Synchronous; see ``gateway.delays.sharded``."""

    def take_batch(self, write: Write) -> BatchSplit | None:
        """Return how a checked batch is split; None when all of it may be appended.

        An error refuses the batch. Nothing may count that is not appended in the same turn of the
        loop.
        """
        ...

    def take_run(self, partition: Partition, run: Run) -> Held | None:
        """Return what is appended in place of a checked run; None for the run itself.

        An error refuses the run. ``Held.done`` is called in any case.
        """
        ...


class SplitWrite(Write):
    """A batch of which a step holds records back. Its base offset stays -1.

    ``now``: the records that are appended at once. ``Writer.append`` appends the writes of
    ``begin`` in its place.
    """

    __slots__ = ("_held", "_holds", "now")

    is_split: ClassVar[bool] = True

    def __init__(
        self, write: Write, now: Write | None, holds: Sequence[Callable[[], Held]]
    ) -> None:
        super().__init__(write.partition, write.batch, write.header)
        self.now = now
        self._holds = holds
        self._held: list[Held] = []

    def begin(self) -> list[Write]:
        """Return the writes to be appended; ``done`` follows."""
        self._held = [hold() for hold in self._holds]
        writes = [] if self.now is None else [self.now]
        for held in self._held:
            writes += held.writes
        return writes

    def done(self, error: GatewayError | None) -> None:
        """Report the outcome of the append."""
        for held in self._held:
            held.done(error)


def split_batch(steps: Sequence[WriteStep], write: Write) -> Write:
    """Return a checked batch as the steps have it. Errors: those of the steps."""
    now: Write | None = write
    holds = []
    for step in steps:
        if now is None:
            break
        split = step.take_batch(now)
        if split is not None:
            now = split.now
            holds.append(split.hold)
    return SplitWrite(write, now, holds) if holds else write


def take_runs(
    steps: Sequence[WriteStep], parts: Sequence[tuple[Partition, Run]], on_done: OnDone
) -> tuple[list[tuple[Partition, Run]], OnDone]:
    """Return checked runs as the steps have them, and the callback of their append.

    Errors: those of the steps, with nothing held.
    """
    taken: list[tuple[Partition, Run]] = []
    held: list[Held] = []
    try:
        for partition, run in parts:
            part = partition, run
            for step in steps:
                one = step.take_run(partition, run)
                if one is not None:
                    held.append(one)
                    assert one.part is not None
                    part = one.part
                    break
            taken.append(part)
    except GatewayError as error:
        end_held(held, as_value(error))
        raise
    return taken, partial(_done, held, on_done) if held else on_done


class Ending(Protocol):
    """Receiver of the outcome of an append."""

    def done(self, error: GatewayError | None) -> None:
        """See ``Held``."""
        ...


def end_held(held: Sequence[Ending], error: GatewayError | None) -> None:
    """Report the outcome of an append to all that was held back for it."""
    for one in held:
        one.done(error)


def _done(
    held: Sequence[Ending],
    on_done: OnDone,
    error: StorageUnavailable | None,
) -> None:
    end_held(held, error)
    on_done(error)


def begin_splits(
    writes: Sequence[Write], on_done: OnDone
) -> tuple[list[Write], OnDone, list[SplitWrite]]:
    """Return what is appended for writes of which some are split, and the append's callback.

    The caller ends the splits, ``end_held``, when the append is refused.
    """
    splits: list[SplitWrite] = []
    whole: list[Write] = []
    for write in writes:
        if isinstance(write, SplitWrite):
            splits.append(write)
            whole += write.begin()
        else:
            whole.append(write)
    return whole, partial(_done, splits, on_done), splits
