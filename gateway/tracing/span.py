"""One span, and the names of its attributes.

Names follow OpenTelemetry's conventions for messaging, which are not stable yet: here only.
"""

from typing import Final, NamedTuple

from gateway.tracing.trace_context import TraceContext

SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
OFFSET: Final = "messaging.headgate.offset"
OUTCOME: Final = "messaging.headgate.outcome"
TYPES: Final = {"publish": "send", "receive": "receive", "settle": "settle"}


class Span(NamedTuple):
    """A finished span. ``parent`` is the context that the message carries. Times are unix ns."""

    operation: str
    parent: TraceContext
    topic: str
    partition: int
    offset: int
    begun_unix_ns: int
    ended_unix_ns: int
    outcome: str = ""
    error: str = ""

    @property
    def name(self) -> str:
        """Name of the span: operation and topic."""
        return f"{self.operation} {self.topic}"

    @property
    def attributes(self) -> dict[str, str | int]:
        """Attributes of the span."""
        found: dict[str, str | int] = {
            SYSTEM: "headgate",
            DESTINATION: self.topic,
            PARTITION: str(self.partition),
            OPERATION: self.operation,
            OPERATION_TYPE: TYPES[self.operation],
            OFFSET: self.offset,
        }
        if self.outcome:
            found[OUTCOME] = self.outcome
        return found
