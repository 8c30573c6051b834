"""Messages in a row whose topics take turns, as columns.

What a message has beside its payload is its *kind*: a run whose payloads do not count, one and
the same for all messages of that topic and form.
"""

from collections.abc import Iterator
from typing import Final

from adapters.mqtt.wire import PublishRun

MIXED_TOPICS_MAX: Final = 1_024  # messages: sending them takes 1 ms
MIXED_TOPICS_BYTES_MAX: Final = 262_144
"""Payload bytes of a batch. A client's output limit is checked between batches."""


class MixedTopicBatch:
    """Messages of consecutive offsets. None of them expires."""

    __slots__ = ("base_offset", "kinds", "payloads")

    def __init__(
        self, base_offset: int, kinds: list[PublishRun], payloads: list[bytes]
    ) -> None:
        self.base_offset = base_offset
        self.kinds = kinds
        self.payloads = payloads

    def runs(self, indexes: range) -> Iterator[PublishRun]:
        """Yield messages at some indexes as runs of one message each."""
        for at in indexes:
            kind = self.kinds[at]
            run = kind.part([self.payloads[at]], qos=kind.qos)
            run.base_offset = self.base_offset + at
            yield run


def end_offset(run: PublishRun | MixedTopicBatch) -> int:
    """Return one past the offset of the last message."""
    return run.base_offset + len(run.payloads)
