"""Messages of one subscription that are delivered and not acknowledged."""

from typing import Generic, TypeVar

from gateway.queues.unacked import Unacked, UnackedRanges
from headgate_stomp.ports import AckMode

Source = TypeVar("Source")


class InFlight(Generic[Source]):
    """Ranges by tag. Tags count from 1 within a subscription."""

    def __init__(self, mode: AckMode) -> None:
        self._mode = mode
        self._ranges: UnackedRanges[Source] = UnackedRanges()
        self._next_tag = 1

    def __len__(self) -> int:
        return self._ranges.count

    def add(self, source: Source, number: int, offsets: range, attempt: int) -> int:
        """Add messages of a partition, by its number; return the first tag."""
        first_tag, size = self._next_tag, len(offsets)
        self._next_tag += size
        if self._mode is not AckMode.AUTO:
            unacked = Unacked(first_tag, size, source, number, offsets.start, attempt)
            self._ranges.add(unacked)
        return first_tag

    def take(self, tag: int) -> list[Unacked[Source]] | None:
        """Remove and return what an ACK of a tag stands for; None for one not in flight."""
        if self._mode is AckMode.CLIENT:
            return self._ranges.take_up_to(tag)
        found = self._ranges.take(tag)
        return None if found is None else [found]

    def take_all(self) -> list[Unacked[Source]]:
        """Remove and return all."""
        return self._ranges.take_all()

    def put_back(self, taken: list[Unacked[Source]]) -> None:
        """Add messages that were taken."""
        self._ranges.put_back(taken)
