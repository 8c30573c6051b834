"""Settings of the Kafka listener: ``[adapters.kafka]``."""

from typing import ClassVar

from pydantic import Field

from adapters.kafka.codec import ELEMENTS_MAX
from gateway.config.base import BindAddress, ListenerConfig

_MIB = 1024 * 1024


class KafkaConfig(ListenerConfig):
    """Every limit has a number; none is infinite."""

    authenticates_users: ClassVar[bool] = True

    bind: BindAddress = Field(default="127.0.0.1:9092", description="Address to listen on.")
    advertise: BindAddress | None = Field(
        default=None,
        description="Address that clients are told to connect to; by default the one they reached.",
    )
    request_bytes_max: int = Field(
        default=100 * _MIB,
        ge=1024,
        le=1024 * _MIB,
        description="Octets of one request; a larger one closes the connection.",
    )
    request_bytes_budget: int = Field(
        default=256 * _MIB,
        ge=_MIB,
        description="Octets of large or waiting requests of all connections; more are not read.",
    )
    request_elements_max: int = Field(
        default=ELEMENTS_MAX,
        ge=100,
        description="Topics, partitions and other array elements of one request; one with more "
        "closes the connection.",
    )
    requests_queued_max: int = Field(
        default=256,
        ge=1,
        description="Requests of one connection that wait for an answer; more are not read.",
    )
    unacknowledged_bytes_max: int = Field(
        default=32 * _MIB,
        ge=_MIB,
        description="Produced octets of one connection that are not kept yet; more are not read. "
        "With storage in S3 134217728.",
    )
    fetch_bytes_max: int = Field(
        default=55 * _MIB,
        ge=1024,
        le=1024 * _MIB,
        description="Octets of one fetch answer, whatever the client allows.",
    )
    fetch_wait_ms_max: int = Field(
        default=300_000, ge=0, description="Milliseconds a fetch may wait for data."
    )
