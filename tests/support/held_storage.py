"""Memory storage whose acknowledgements a test holds back: a disk as slow as one likes."""

from collections.abc import Sequence
from functools import partial

from gateway.errors import StorageUnavailable
from gateway.storage import Entry, OnDone
from storage_adapters.memory import MemoryStorage


class HeldStorage(MemoryStorage):
    """While ``held``, what is enqueued stays queued; ``release`` answers it, in order."""

    held = False
    enqueued = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed on as they came
        self._kept_back: list[tuple[OnDone, StorageUnavailable | None]] = []

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """See ``StorageAdapter``."""
        self.enqueued += 1
        size_bytes = sum(len(entry.batch) for entry in entries)
        done = partial(self._done, on_done, size_bytes) if self.held else on_done
        super().enqueue(entries, done, reserved=reserved)

    def _done(self, on_done: OnDone, size_bytes: int, error: StorageUnavailable | None) -> None:
        self.queued_bytes += size_bytes
        answer = partial(self._answer, on_done, size_bytes)
        if self.held:
            self._kept_back.append((answer, error))
        else:  # released between its enqueue and its end
            answer(error)

    def _answer(
        self, on_done: OnDone, size_bytes: int, error: StorageUnavailable | None
    ) -> None:
        self.queued_bytes -= size_bytes
        on_done(error)

    def release(self) -> None:
        """The disk is back: answer all that was held, and hold nothing more."""
        self.held = False
        kept_back, self._kept_back = self._kept_back, []
        for on_done, error in kept_back:
            on_done(error)
