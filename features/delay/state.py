"""Delayed messages of all topics: due times, log locations and counts by topic.

32 bytes a message, without an object for each. A run of messages (``runs``) is one entry here,
and one object, named by its first number; all but the counts is by entry.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from features.delay.message_locations import MessageLocation, MessageLocations
from features.delay.runs import DelayedRun, Runs
from features.delay.wheel import TimingWheel

Taken = tuple[int, int, MessageLocation]  # due time, number, place

LOG_BLOCK_BITS: Final = 4  # live entries are counted for each 16 offsets of the stream


class _Topic:
    """Counts of one topic. ``references``: places that name it, also of what was purged."""

    __slots__ = (
        "count",
        "index",
        "live_bytes",
        "purged_below",
        "references",
        "row_count",
        "uuid",
    )

    def __init__(self, uuid: bytes, index: int) -> None:
        self.uuid = uuid
        self.index = index
        self.count = 0
        self.row_count = 0
        self.live_bytes = 0
        self.purged_below = 0
        self.references = 0


class DelayState:
    """State of all delayed messages. ``live_bytes``: bytes of the live entries."""

    def __init__(self, now_unix_ms: int) -> None:
        self.wheel = TimingWheel(now_unix_ms)
        self.count = 0
        self.live_bytes = 0
        self.runs = Runs()
        self._row_count = 0
        self._locations = MessageLocations()
        self._topics: dict[bytes, _Topic] = {}
        self._by_index: dict[int, _Topic] = {}
        self._last_index = 0
        self._log_blocks: dict[int, int] = {}  # ascending: the stream only grows at its end

    def loaded(self) -> None:
        """End the load: all stored entries were added, and later numbers only grow."""
        self._locations.tighten()

    def count_of(self, topic_uuid: bytes) -> int:
        """Return how many messages of a topic wait."""
        topic = self._topics.get(topic_uuid)
        return 0 if topic is None else topic.count

    @property
    def topic_counts(self) -> dict[bytes, int]:
        """Number of delayed messages by topic, for topics that have any."""
        return {one.uuid: one.count for one in self._topics.values() if one.count}

    def add(  # noqa: PLR0917 - columns of a row
        self,
        due_unix_ms: int,
        number: int,
        topic_uuid: bytes,
        offset: int,
        size_bytes: int,
        run_count: int = 0,
    ) -> bool:
        """Add a message that lies at ``offset``; False when its topic was purged meanwhile.

        Or a run of ``run_count`` messages. A number that is there already lies at ``offset``
        from now on.
        """
        old = self._locations.get(number)
        if old is not None:
            self.move(number, old, offset)
            return True
        topic = self._topic(topic_uuid)
        if number < topic.purged_below:
            return False
        if run_count:
            self.runs.add(number, run_count)
        count = run_count or 1
        topic.count += count
        topic.row_count += 1
        topic.live_bytes += size_bytes
        topic.references += 1
        self.count += count
        self._row_count += 1
        self.live_bytes += size_bytes
        self._locations.set(number, (offset, size_bytes, topic.index))
        self._count_block(offset >> LOG_BLOCK_BITS, 1)
        self.wheel.insert(due_unix_ms, number)
        return True

    def expect(self, topic_uuid: bytes) -> None:
        """A message of the topic is on its way: a purge that comes before it holds for it."""
        self._topic(topic_uuid).references += 1

    def expected(self, topic_uuid: bytes) -> None:
        """End ``expect``: the messages were added, or do not come."""
        self._release(self._topics[topic_uuid])

    def _topic(self, topic_uuid: bytes) -> _Topic:
        topic = self._topics.get(topic_uuid)
        if topic is None:
            self._last_index += 1
            topic = _Topic(topic_uuid, self._last_index)
            self._topics[topic_uuid] = self._by_index[topic.index] = topic
        return topic

    def _release(self, topic: _Topic, references: int = 1) -> None:
        topic.references -= references
        if not topic.references:
            del self._topics[topic.uuid]
            del self._by_index[topic.index]

    def move(self, number: int, location: MessageLocation, offset: int) -> None:
        """An entry was appended again: it lies at ``offset`` now."""
        old_offset, size_bytes, topic_index = location
        self._locations.set(number, (offset, size_bytes, topic_index))
        self._count_block(offset >> LOG_BLOCK_BITS, 1)
        self._count_block(old_offset >> LOG_BLOCK_BITS, -1)

    def find(self, number: int) -> MessageLocation | None:
        """Return where a message lies that waits, None when it does not (any more)."""
        location = self._locations.get(number)
        return None if location is None or self.is_purged(number, location) else location

    def take(
        self, count_max: int, bytes_max: int, *, until_unix_ms: int | None = None
    ) -> tuple[list[Taken], list[int]]:
        """Take what is due, or will be until ``until_unix_ms``; at least one if there is one.

        What is taken, in order, still counts, until it is ``settled``; or it is put ``back``.
        More than ``bytes_max`` bytes are taken only as one message. The second list has
        numbers that were due and do not count any more.
        """
        taken: list[Taken] = []
        gone: list[int] = []
        size_bytes = 0
        if self.count:
            rows = self._row_count
            count_max = min(count_max, bytes_max * rows // (self.live_bytes or 1) + 1)
        due = self.wheel.take_due(count_max, until_unix_ms=until_unix_ms)
        locations = self._locations.pop_many([number for _, number in due])
        if None not in locations and self._takes_all(locations, bytes_max):
            return [
                (one[0], one[1], location)
                for one, location in zip(due, locations, strict=True)
                if location
            ], gone
        topic_index, purged_below = 0, 0
        for at, (due_unix_ms, number) in enumerate(due):
            location = locations[at]
            if location is None:
                gone.append(number)
                continue
            if location[2] != topic_index:
                topic_index = location[2]
                purged_below = self._by_index[topic_index].purged_below
            if number < purged_below:
                self.settled([(number, location)])
                topic_index = 0  # that was the last of its topic, maybe
                gone.append(number)
                continue
            size_bytes += location[1]
            if taken and size_bytes > bytes_max:
                self._put_back(due[at:], locations[at:])
                break
            taken.append((due_unix_ms, number, location))
        return taken, gone

    def _takes_all(self, locations: Iterable[MessageLocation | None], bytes_max: int) -> bool:
        """Whether nothing of it was purged or is too much: the rule, without a look at each."""
        columns = list(zip(*filter(None, locations), strict=True))
        if not columns:
            return False
        _, sizes, indexes = columns
        topics = [self._by_index[index] for index in set(indexes)]
        return sum(sizes) <= bytes_max and not any(topic.purged_below for topic in topics)

    def _put_back(
        self, due: list[tuple[int, int]], locations: Sequence[MessageLocation | None]
    ) -> None:
        self.wheel.put_back(due)
        for (_, number), location in zip(due, locations, strict=True):
            if location is not None:
                self._locations.set(number, location)

    def settled(self, taken: Iterable[tuple[int, MessageLocation]]) -> None:
        """Forget taken messages, (number, location) each: moved to their topic, or dropped."""
        members: dict[int, list[tuple[int, MessageLocation]]] = {}
        for index, some in groupby(taken, _topic_index):
            members.setdefault(index, []).extend(some)
        for index, rows in members.items():
            topic = self._by_index[index]
            for block, count in Counter(
                [location[0] >> LOG_BLOCK_BITS for _, location in rows]
            ).items():
                self._count_block(block, -count)
            counted = rows
            if topic.purged_below:
                counted = [one for one in rows if one[0] >= topic.purged_below]
            size_bytes = sum([location[1] for _, location in counted])
            count = len(counted)
            if self.runs:
                count += self._more_in_runs(rows, topic.purged_below)
            topic.count -= count
            topic.row_count -= len(counted)
            topic.live_bytes -= size_bytes
            self.count -= count
            self._row_count -= len(counted)
            self.live_bytes -= size_bytes
            self._release(topic, len(rows))

    def _more_in_runs(
        self, rows: Iterable[tuple[int, MessageLocation]], purged_below: int
    ) -> int:
        """Forget the runs among rows; return by how many messages they are more than rows."""
        found = [self.runs.pop(number) for number, _ in rows]
        return sum([run.left - 1 for run in found if run and run.first >= purged_below])

    def settle_part(self, run: DelayedRun, count: int, location: MessageLocation) -> None:
        """Count removed messages of a run; the run itself stays.

        ``settled`` is to follow when none is left.
        """
        run.left -= count
        topic = self._by_index[location[2]]
        if run.first >= topic.purged_below:
            topic.count -= count
            self.count -= count

    def back(self, number: int, location: MessageLocation, due_unix_ms: int) -> None:
        """Put a taken message back, due at ``due_unix_ms``."""
        self._locations.set(number, location)
        self.wheel.insert(due_unix_ms, number)

    def remove(self, number: int) -> MessageLocation | None:
        """Take out one message that waits; None when it does not (any more).

        It still counts: as for ``take``.
        """
        if self.find(number) is None:
            return None
        return self._locations.pop(number)

    def is_purged(self, number: int, location: MessageLocation) -> bool:
        """Whether what was taken was purged meanwhile."""
        return number < self._by_index[location[2]].purged_below

    def purged_below(self, topic_uuid: bytes) -> int:
        """Return below which number all that a topic has waiting was purged."""
        return self._topics[topic_uuid].purged_below

    def purge(self, topic_uuid: bytes, below: int) -> None:
        """Take out what a topic has waiting with a number below; at once, whatever there is.

        What it costs in memory goes bit by bit: when its time comes, or when the stream is made
        smaller (``drop_purged``).
        """
        topic = self._topics.get(topic_uuid)
        if topic is None:
            return
        self.count -= topic.count
        self._row_count -= topic.row_count
        self.live_bytes -= topic.live_bytes
        topic.count = topic.row_count = topic.live_bytes = 0
        topic.purged_below = below

    def drop_purged(self, number: int, offset: int) -> None:
        """Forget a number whose entry at ``offset`` was purged, if that is so."""
        location = self._locations.get(number)
        if location is not None and location[0] == offset and self.is_purged(number, location):
            self._locations.pop(number)
            self.settled([(number, location)])

    @property
    def lowest_offset(self) -> int | None:
        """An offset of the stream below which nothing is needed; None when nothing is."""
        block = next(iter(self._log_blocks), None)
        return None if block is None else block << LOG_BLOCK_BITS

    def _count_block(self, block: int, change: int) -> None:
        blocks = self._log_blocks
        count = blocks.get(block, 0) + change
        if count:
            blocks[block] = count
        else:
            del blocks[block]


def _topic_index(one: tuple[int, MessageLocation]) -> int:
    return one[1][2]
