"""Config sections of queues and delayed messages."""

from typing import Final, Literal

from pydantic import Field

from gateway.config.base import FrozenConfig
from gateway.config.names import DeclaredMode, TopicNameOrNone, TopicNameText

_MIB: Final = 1024 * 1024


class QueueConfig(FrozenConfig):
    """Bounds of all queues, whatever protocol reads them."""

    queues_max: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Queues on this node; more are refused."
    )
    receivers_max: int = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description="Receivers that wait for messages, and registered consumers, of all queues; "
        "more are refused.",
    )
    wait_ms_max: int = Field(
        default=60_000,
        ge=0,
        le=3_600_000,
        description="Milliseconds a receiver may wait before it gets an empty answer.",
    )
    lookahead: int = Field(
        default=120_000,
        ge=1_000,
        le=10_000_000,
        description="Runs of messages with one key that a partition's queue looks ahead, to find a "
        "message of a free or quiet key behind those of other keys.",
    )
    bodies_bytes_max: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        description="Bytes of memory for batches kept for later receives; a batch is dropped once "
        "all its messages are settled.",
    )
    journal_room_bytes: int = Field(
        default=8 * _MIB,
        ge=_MIB,
        description="Bytes that the queues' journal may grow above twice its live size before it "
        "is rewritten.",
    )


class DelayConfig(FrozenConfig):
    """Delayed messages."""

    messages_max: int = Field(
        default=10_000_000,
        ge=1,
        le=1_000_000_000,
        description="Delayed messages of all topics; more are refused.",
    )
    drafted_bytes_max: int = Field(
        default=128 * _MIB,
        ge=_MIB,
        description="Bytes, decompressed, of delayed messages on their way into the log; more are "
        "refused. Above `broker.wal_queued_bytes_max` connections are paused first.",
    )
    due_per_tick: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Due messages that are appended in one step, between which other work goes on.",
    )


class DeclaredQueue(FrozenConfig):
    """One queue of `[[queues]]`; it is made at the start, with its topic, when it is not there.

    What a queue that is there has been given since stays as it is, unless `declared` is `enforce`:
    then it gets the settings that are set here. The settings have the names,
    the defaults and the bounds of ``gateway.queues.model.QueueSettings``; what is not set here
    is that default.
    """

    name: TopicNameText = Field(description="Name of the queue and of its topic.")
    declared: DeclaredMode | None = Field(
        default=None,
        description="`create` or `enforce` for this one; `node.declared` if unset.",
    )
    partitions: int = Field(
        default=1, ge=1, le=100_000, description="Partitions of its topic when it is created."
    )
    order: Literal["none", "key", "fair", "priority"] = Field(
        default="none",
        description="`key`: messages of one key one after the other (FIFO; needed where the "
        "name ends in `.fifo`); `fair`: those of quiet keys before those of noisy ones; "
        "`priority`: those of the highest priority first.",
    )
    priority_max: int = Field(
        default=9,
        ge=1,
        le=255,
        description="Highest priority with the order `priority`; what is above counts as this.",
    )
    lease_ms: int = Field(
        default=30_000,
        ge=0,
        le=43_200_000,
        description="Milliseconds a receiver has to settle a message before it is delivered again.",
    )
    delay_ms: int = Field(
        default=0, ge=0, description="Milliseconds before a message can be received."
    )
    retention_ms: int = Field(
        default=-1,
        ge=-1,
        description="Milliseconds for which messages are kept; -1 for no limit.",
    )
    message_ttl_ms: int = Field(
        default=-1,
        ge=-1,
        description="Milliseconds for which a message may be ready before it is a dead letter, "
        "`expired`; -1 for no limit.",
    )
    attempts_max: int = Field(
        default=0,
        ge=0,
        description="Deliveries of a message before it is a dead letter; 0 for no limit.",
    )
    delivery_limit: int = Field(
        default=-1,
        ge=-1,
        description="Failed deliveries of a message that are allowed: after one more it is a dead "
        "letter. -1 for no limit.",
    )
    retry_delay_ms: int = Field(
        default=0,
        ge=0,
        le=315_360_000_000,
        description="Milliseconds before a message that came back can be received, as often as it "
        "was delivered.",
    )
    retry_delay_ms_max: int = Field(
        default=0,
        ge=0,
        le=315_360_000_000,
        description="Limit of that delay, in milliseconds; 0 for no limit.",
    )
    retry_delay_on: Literal["failed", "returned", "all"] = Field(
        default="all",
        description="Deliveries after which it applies: those that failed, those that were "
        "returned without that, or all.",
    )
    dead_letter_topic: TopicNameOrNone = Field(
        default="",
        description="Topic for dead letters; it is created, with a queue, if missing. Without one "
        "they are dropped.",
    )
    dead_letter_exchange: str = Field(
        default="",
        max_length=255,
        description="Exchange for dead letters, in place of a topic; `amq.default` is the default "
        "exchange. Where it routes to no topic, or is missing, they are dropped.",
    )
    dead_letter_routing_key: str | None = Field(
        default=None,
        max_length=255,
        description="Routing key for that exchange; without one, a message keeps its own.",
    )
    in_flight_max: int = Field(
        default=120_000,
        ge=1,
        le=1_000_000,
        description="Messages of a partition in flight at a time.",
    )
    length_max: int = Field(
        default=0,
        ge=0,
        description="Ready messages of the queue; above it the oldest are dead letters. 0 for no "
        "limit.",
    )
    length_bytes_max: int = Field(
        default=0,
        ge=0,
        description="Bytes of the ready messages' values, as `length_max`; 0 for no limit.",
    )
    overflow: Literal["drop-head", "reject-publish", "reject-publish-dlx"] = Field(
        default="drop-head",
        description="`drop-head`: above these lengths the oldest messages are dead letters; "
        "`reject-publish`: publishers are refused; `reject-publish-dlx`: and what comes by an "
        "exchange is a dead letter.",
    )
    expires_ms: int = Field(
        default=0,
        ge=0,
        description="Milliseconds without a consumer, a receive or a declaration after which the "
        "queue is deleted; 0 for never.",
    )
    single_active: bool = Field(
        default=False,
        description="Deliver to one registered consumer at a time, until it leaves.",
    )
