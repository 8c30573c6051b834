"""Queues in the kernel's words: settings, rows of the metadata store, deliveries.

A queue is a topic and a queue group that competes for its messages. All spans are milliseconds.
"""

from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from pydantic import Field

from features.queue.model import NO_LIMIT
from features.queue.model import Order as Order  # noqa: PLC0414
from features.queue.model import Outcome as Outcome  # noqa: PLC0414 - for plug-ins, which call ``settle``
from features.queue.model import Result as Result  # noqa: PLC0414
from features.queue.model import RetryOn as RetryOn  # noqa: PLC0414
from features.queue.model import SettledRange as SettledRange  # noqa: PLC0414
from features.queue.retrying import DeliveryEnd as DeliveryEnd  # noqa: PLC0414
from gateway.config.base import FrozenConfig
from gateway.model import DEFAULT_GROUP as DEFAULT_GROUP  # noqa: PLC0414 - a word of queues
from gateway.model import Record

LEASE_MS_MAX: Final = 43_200_000  # 12 h
RETRY_DELAY_MS_MAX: Final = 315_360_000_000  # ten years


class Overflow(StrEnum):
    """Way of a queue to keep its length."""

    DROP_HEAD = "drop-head"  # the oldest ready messages are dead letters, or dropped
    REJECT_PUBLISH = "reject-publish"  # publishers are refused
    REJECT_PUBLISH_DLX = "reject-publish-dlx"  # and what exchanges bring is a dead letter


class QueueSettings(FrozenConfig):
    """Settings of a queue for every protocol. Stored as JSON; defaults are left out."""

    order: Order = Order.NONE
    priority_max: int = Field(
        default=9, ge=1, le=255, description="With `order=priority`; above counts as this."
    )
    lease_ms: int = Field(default=30_000, ge=0, le=LEASE_MS_MAX)
    delay_ms: int = Field(default=0, ge=0, description="Visible only when that old.")
    retention_ms: int = Field(default=-1, ge=-1, description="Older messages go; -1 for none.")
    message_ttl_ms: int = Field(
        default=-1,
        ge=-1,
        description="Ready for longer: a dead letter; -1 for any time (RabbitMQ: message-ttl).",
    )
    attempts_max: int = Field(default=0, ge=0, description="0 for any number.")
    delivery_limit: int = Field(
        default=NO_LIMIT,
        ge=NO_LIMIT,
        description="Failed deliveries allowed; -1 for any number.",
    )
    retry_delay_ms: int = Field(
        default=0, ge=0, le=RETRY_DELAY_MS_MAX, description="As often as it was delivered."
    )
    retry_delay_ms_max: int = Field(
        default=0, ge=0, le=RETRY_DELAY_MS_MAX, description="0 for no limit."
    )
    retry_delay_on: RetryOn = RetryOn.ALL
    dead_letter_topic: str = Field(
        default="", description="In the same namespace; empty: none."
    )
    dead_letter_exchange: str = Field(
        default="",
        max_length=255,
        description="In place of a topic; `amq.default` is the default exchange.",
    )
    dead_letter_routing_key: str | None = Field(
        default=None, max_length=255, description="For the exchange; none: that of the message."
    )
    in_flight_max: int = Field(default=120_000, ge=1, le=1_000_000)
    length_max: int = Field(
        default=0, ge=0, description="Ready messages; above it the oldest go. 0 for any number."
    )
    length_bytes_max: int = Field(
        default=0, ge=0, description="Bytes of ready messages' values; 0 for any number."
    )
    overflow: Overflow = Field(
        default=Overflow.DROP_HEAD,
        description="Above these lengths the oldest messages go, or publishers are refused.",
    )
    expires_ms: int = Field(
        default=0,
        ge=0,
        description="Deleted when unused for so long; 0 for never (RabbitMQ: expires).",
    )
    single_active: bool = Field(
        default=False,
        description="Deliver to one registered consumer at a time, until it leaves.",
    )

    @property
    def has_dead_letters(self) -> bool:
        """Whether messages that die go anywhere."""
        return bool(self.dead_letter_topic or self.dead_letter_exchange)


class EarlierDelay(NamedTuple):
    """A delay that a queue had: see ``delay_changes``. ``ends``: offsets, by partition."""

    ends: tuple[int, ...]
    delay_ms: int
    changed_unix_ms: int


class QueueRow(NamedTuple):
    """A queue as the metadata store has it.

    ``attributes``: what a protocol keeps beside the settings, by its own names, prefixed with the
    protocol (``sqs.Policy``). ``owns_topic``: the topic was made for it and goes with it.
    """

    topic_uuid: UUID
    group: str
    settings: QueueSettings
    attributes: dict[str, str]
    tags: dict[str, str]
    owns_topic: bool
    created_unix_ms: int
    changed_unix_ms: int
    earlier_delays: tuple[EarlierDelay, ...] = ()


class DeliveryId(NamedTuple):
    """Id by which a receiver settles a message; stale once the message is handed out again."""

    number: int  # of the partition
    offset: int
    attempt: int


class Delivery(NamedTuple):
    """A message that was handed out."""

    number: int
    attempt: int
    first_taken_unix_ms: int
    record: Record

    @property
    def delivery_id(self) -> DeliveryId:
        """Id for settling the message."""
        return DeliveryId(self.number, self.record.offset, self.attempt)
