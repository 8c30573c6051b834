"""What waits, of all topics: when it is due, where it lies, how many there are of each topic.

32 octets for each message, in memory that holds no objects for them.
"""

from typing import Final

from features.delay.places import Place, Places
from features.delay.wheel import TimingWheel

LOG_BLOCK_BITS: Final = 8  # live entries are counted for each 256 offsets of the stream


class _Topic:
    """Counts of one topic. ``references``: places that name it, also of what was purged."""

    __slots__ = ("count", "index", "live_bytes", "purged_below", "references", "uuid")

    def __init__(self, uuid: bytes, index: int) -> None:
        self.uuid = uuid
        self.index = index
        self.count = 0
        self.live_bytes = 0
        self.purged_below = 0
        self.references = 0


class DelayState:
    """All that waits. ``live_bytes`` are the octets of the entries that count."""

    def __init__(self, now_unix_ms: int) -> None:
        self.wheel = TimingWheel(now_unix_ms)
        self.count = 0
        self.live_bytes = 0
        self._places = Places()
        self._topics: dict[bytes, _Topic] = {}
        self._by_index: dict[int, _Topic] = {}
        self._last_index = 0
        self._log_blocks: dict[int, int] = {}  # ascending: the stream only grows at its end

    def loaded(self) -> None:
        """All that was stored has been added; numbers that are added now only grow."""
        self._places.tighten()

    def count_of(self, topic_uuid: bytes) -> int:
        """Return how many messages of a topic wait."""
        topic = self._topics.get(topic_uuid)
        return 0 if topic is None else topic.count

    @property
    def topic_counts(self) -> dict[bytes, int]:
        """How many messages wait, of each topic that has any."""
        return {one.uuid: one.count for one in self._topics.values() if one.count}

    def add(
        self, due_unix_ms: int, number: int, topic_uuid: bytes, offset: int, size_bytes: int
    ) -> bool:
        """Add a message that lies at ``offset``; False when its topic was purged meanwhile.

        A number that is there already lies at ``offset`` from now on.
        """
        old = self._places.get(number)
        if old is not None:
            self.move(number, old, offset)
            return True
        topic = self._topic(topic_uuid)
        if number < topic.purged_below:
            return False
        topic.count += 1
        topic.live_bytes += size_bytes
        topic.references += 1
        self.count += 1
        self.live_bytes += size_bytes
        self._places.set(number, (offset, size_bytes, topic.index))
        self._count_block(offset, 1)
        self.wheel.insert(due_unix_ms, number)
        return True

    def expect(self, topic_uuid: bytes) -> None:
        """A message of the topic is on its way: a purge that comes before it holds for it."""
        self._topic(topic_uuid).references += 1

    def expected(self, topic_uuid: bytes) -> None:
        """What was expected was added, or does not come."""
        self._release(self._topics[topic_uuid])

    def _topic(self, topic_uuid: bytes) -> _Topic:
        topic = self._topics.get(topic_uuid)
        if topic is None:
            self._last_index += 1
            topic = _Topic(topic_uuid, self._last_index)
            self._topics[topic_uuid] = self._by_index[topic.index] = topic
        return topic

    def _release(self, topic: _Topic) -> None:
        topic.references -= 1
        if not topic.references:
            del self._topics[topic.uuid]
            del self._by_index[topic.index]

    def move(self, number: int, place: Place, offset: int) -> None:
        """An entry was appended again: it lies at ``offset`` now."""
        old_offset, size_bytes, topic_index = place
        self._places.set(number, (offset, size_bytes, topic_index))
        self._count_block(offset, 1)
        self._count_block(old_offset, -1)

    def find(self, number: int) -> Place | None:
        """Return where a message lies that waits, None when it does not (any more)."""
        place = self._places.get(number)
        return None if place is None or self.is_purged(number, place) else place

    def take(self, count_max: int, bytes_max: int) -> tuple[list[tuple[int, Place]], list[int]]:
        """Take (number, place) of what is due, in order; at least one where there is one.

        What is taken still counts, until it is ``settled``; or it is put ``back``. More than
        ``bytes_max`` octets are taken only as one message. The second list has numbers that
        were due and do not count any more.
        """
        taken: list[tuple[int, Place]] = []
        gone: list[int] = []
        size_bytes = 0
        if self.count:
            count_max = min(count_max, bytes_max * self.count // (self.live_bytes or 1) + 1)
        numbers = self.wheel.take_due(count_max)
        for at, (_, number) in enumerate(numbers):
            place = self._places.pop(number)
            if place is None:
                gone.append(number)
            elif self.is_purged(number, place):
                self.settled(number, place)
                gone.append(number)
            elif taken and size_bytes + place[1] > bytes_max:
                self._places.set(number, place)
                self.wheel.put_back(numbers[at:])
                break
            else:
                taken.append((number, place))
                size_bytes += place[1]
        return taken, gone

    def settled(self, number: int, place: Place) -> None:
        """What was taken is in its topic, or gone for good."""
        offset, size_bytes, topic_index = place
        topic = self._by_index[topic_index]
        if number >= topic.purged_below:
            topic.count -= 1
            topic.live_bytes -= size_bytes
            self.count -= 1
            self.live_bytes -= size_bytes
        self._count_block(offset, -1)
        self._release(topic)

    def back(self, number: int, place: Place, due_unix_ms: int) -> None:
        """What was taken waits again, until ``due_unix_ms``."""
        self._places.set(number, place)
        self.wheel.insert(due_unix_ms, number)

    def remove(self, number: int) -> Place | None:
        """Take out one message that waits; None when it does not (any more).

        It still counts: as for ``take``.
        """
        if self.find(number) is None:
            return None
        return self._places.pop(number)

    def is_purged(self, number: int, place: Place) -> bool:
        """Whether what was taken was purged meanwhile."""
        return number < self._by_index[place[2]].purged_below

    def purge(self, topic_uuid: bytes, below: int) -> None:
        """Take out what a topic has waiting with a number below; at once, whatever there is.

        What it costs in memory goes bit by bit: when its time comes, or when the stream is made
        smaller (``drop_purged``).
        """
        topic = self._topics.get(topic_uuid)
        if topic is None:
            return
        self.count -= topic.count
        self.live_bytes -= topic.live_bytes
        topic.count = topic.live_bytes = 0
        topic.purged_below = below

    def drop_purged(self, number: int, offset: int) -> None:
        """Forget a number whose entry at ``offset`` was purged, if that is so."""
        place = self._places.get(number)
        if place is not None and place[0] == offset and self.is_purged(number, place):
            self._places.pop(number)
            self.settled(number, place)

    @property
    def lowest_offset(self) -> int | None:
        """An offset of the stream below which nothing is needed; None when nothing is."""
        block = next(iter(self._log_blocks), None)
        return None if block is None else block << LOG_BLOCK_BITS

    def _count_block(self, offset: int, change: int) -> None:
        blocks = self._log_blocks
        block = offset >> LOG_BLOCK_BITS
        count = blocks.get(block, 0) + change
        if count:
            blocks[block] = count
        else:
            del blocks[block]
