"""Live state of one partition: made at first use, changed on the event loop only."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from features.dedup import ProducerSequences
from features.open_transactions import PartitionTransactions
from gateway.errors import NotLeader, TopicNotFound
from gateway.model import BatchHeader
from gateway.storage import Bounds
from gateway.topics.index import Topic

if TYPE_CHECKING:
    from gateway.records.record_run import RecordRun


class Appended(Protocol):
    """Listener to a partition's appends: a waiting fetch, or a tail."""

    def on_appended(self, write: "Write") -> None:
        """Take note of one more batch that is readable. Must be cheap and must not raise.

        It follows what was readable before, and is part of no transaction, unless
        ``reads_uncommitted``.
        """
        ...

    def on_stable(self) -> None:
        """Read again: a transaction has ended, and ``stable_end`` has moved. Must not raise."""
        ...

    @property
    def reads_uncommitted(self) -> bool:
        """Whether it reads up to the high watermark, and is told of each batch."""
        ...

    def on_truncated(self) -> None:
        """Take note of a new log start offset. Must be cheap and must not raise."""
        ...

    def on_gone(self) -> None:
        """Stop waiting: the topic was deleted, or the partition has moved. Must not raise."""
        ...

    @property
    def takes_pending(self) -> bool:
        """Whether, when the partition moves, it is told of appends that are under way first."""
        ...


class Partition:
    """State of a partition in the broker.

    ``log_end_offset`` is the next offset to give; ``high_watermark`` is one past what the storage
    has done as its flush policy promises, and reaches the log end. Readers see what is below
    ``stable_end``, a batch's base offset or the high watermark: no transaction is open there.
    Without open transactions it is the high watermark. ``transactions`` is None until the first
    batch of one.
    ``is_gone``: the topic was deleted, or another node owns the partition's shard; reads and
    writes are refused. ``moved_to``: the id and the epoch of that owner; None unless it has moved.
    A partition that comes back is another object.
    """

    __slots__ = (
        "high_watermark",
        "is_gone",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "moved_to",
        "number",
        "partition_id",
        "producers",
        "shard",
        "stable_end",
        "topic",
        "transactions",
        "waiters",
    )

    def __init__(
        self, topic: Topic, number: int, bounds: Bounds, *, leader_epoch: int, shard: int = 0
    ) -> None:
        self.topic = topic
        self.number = number
        self.partition_id = topic.partition_ids[number]
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.log_start_offset = bounds.start
        self.log_end_offset = bounds.end
        self.high_watermark = bounds.end
        self.stable_end = bounds.end
        self.is_gone = False
        self.moved_to: tuple[int, int] | None = None
        self.producers: ProducerSequences | None = None
        self.transactions: PartitionTransactions | None = None
        self.waiters: set[Appended] = set()

    def check_present(self) -> None:
        """Raise ``TopicNotFound`` for a deleted topic, ``NotLeader`` for a partition that moved."""
        if self.moved_to is not None:
            raise not_leader(self.topic, self.number, *self.moved_to)
        if self.is_gone:
            msg = f"topic {self.topic.name.name} was deleted"
            raise TopicNotFound(msg)

    def move_stable_end(self) -> bool:
        """Set ``stable_end`` by the open transactions and the offsets; return whether it moved."""
        before = self.stable_end
        if self.transactions is None:
            self.stable_end = self.high_watermark
        else:
            stable_end = self.transactions.stable_end(self.high_watermark)
            self.stable_end = max(stable_end, self.log_start_offset)
        return self.stable_end != before

    def end_waiters(self) -> None:
        """Call the waiters of a partition that has gone."""
        for waiter in tuple(self.waiters):
            waiter.on_gone()

    def __repr__(self) -> str:
        return (
            f"<{self.topic.name.name}-{self.number} "
            f"{self.log_start_offset}..{self.high_watermark}..{self.log_end_offset}>"
        )


def not_leader(topic: Topic, number: int, owner_id: int, epoch: int) -> NotLeader:
    """Return the error for a partition that another node owns, with that node and its epoch."""
    msg = f"partition {number} of {topic.name.name} is another node's"
    return NotLeader(msg, owner_id=owner_id, epoch=epoch)


class Write:
    """Batch to be appended to a partition; ``Writer.append`` sets ``base_offset``.

    ``header`` is the batch's header; its base offset and leader epoch are not set yet. A batch may
    take more offsets than it has records (``gateway.delays.split``), so positions are computed
    with ``offset_count``.

    ``natives`` are the runs in the batch as their protocol knows them, in order, each with the
    offset of its first record; None when a part of the batch has no such form. A run that was cut
    into several batches of one append is in the ``natives`` of each, with the same offset: it may
    begin before the batch and end behind it.

    ``runs`` are the runs that the batch was encoded from, in order, so that live readers need not
    decode it; None for a batch that a client encoded.

    ``further`` are the writes of the same batch to other partitions: ``gateway.fan_out_write``.
    """

    __slots__ = ("base_offset", "batch", "further", "header", "natives", "partition", "runs")

    is_split: ClassVar[bool] = False
    """Whether a step of the write path holds records back: ``gateway.write_steps.SplitWrite``."""

    def __init__(
        self, partition: Partition, batch: bytearray | memoryview, header: BatchHeader
    ) -> None:
        self.partition = partition
        self.batch = batch
        self.header = header
        self.base_offset = -1
        self.natives: Sequence[tuple[int, object]] | None = None
        self.runs: Sequence[RecordRun] | None = None
        self.further: Sequence[Write] = ()

    @property
    def size_bytes(self) -> int:
        """Size of the batch."""
        return len(self.batch)

    @property
    def stored(self) -> "Write":
        """The write whose ``batch`` is stored: this one, or the first of a fan-out."""
        return self

    @property
    def offset_count(self) -> int:
        """Number of offsets of the batch, including those without a record."""
        return self.header.last_offset_delta + 1

    @property
    def end_offset(self) -> int:
        """One past the batch's last offset."""
        return self.base_offset + self.offset_count
