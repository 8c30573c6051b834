"""Stream within a process: both ends in one object, items passed as they are."""

import asyncio

from gateway.shards.model import Reply, StreamReceiver, StreamSource


class LocalStream:
    """See ``Sink`` and ``Stream``. The receiver is called in later turns of the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, receiver: StreamReceiver, credit: int
    ) -> None:
        self._loop = loop
        self._receiver: StreamReceiver | None = receiver
        self._source: StreamSource | None = None
        self._credit = credit
        self._has_ended = False
        self._is_waking = False

    def begin(self, source: StreamSource) -> None:
        """Let the service send, as soon as there is credit."""
        self._source = source
        self._wake()

    # --- the service's end

    @property
    def credit(self) -> int:
        """See ``Sink``."""
        return 0 if self._has_ended else self._credit

    def send(self, item: object) -> None:
        """See ``Sink``."""
        assert self.credit > 0, "an item without credit"
        self._credit -= 1
        self._loop.call_soon(self._deliver, item)

    def end(self, reply: Reply) -> None:
        """See ``Sink``."""
        if not self._has_ended:
            self._has_ended = True
            self._source = None
            self._loop.call_soon(self._deliver_end, reply)

    def _deliver(self, item: object) -> None:
        if self._receiver is not None:
            self._receiver.on_item(item)

    def _deliver_end(self, reply: Reply) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.on_end(reply)

    # --- the caller's end

    def grant(self, count: int) -> None:
        """See ``Stream``."""
        self._credit += count
        self._wake()

    def close(self) -> None:
        """See ``Stream``."""
        self._receiver = None
        source, self._source = self._source, None
        if not self._has_ended:
            self._has_ended = True
            if source is not None:
                source.on_closed()

    def _wake(self) -> None:
        if self._source is not None and self._credit > 0 and not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._on_credit)

    def _on_credit(self) -> None:
        self._is_waking = False
        if self._source is not None and self._credit > 0:
            self._source.on_credit()
