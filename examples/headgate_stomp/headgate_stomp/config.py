"""The section ``[adapters.stomp]``."""

from typing import ClassVar

from pydantic import Field

from gateway.config.base import BindAddress, ListenerConfig


class StompConfig(ListenerConfig):
    """Settings of STOMP. Every limit is a number."""

    authenticates_users: ClassVar[bool] = True

    bind: BindAddress = Field(default="127.0.0.1:61613", description="Address to listen on.")
    header_bytes_max: int = Field(
        default=16_384, ge=256, le=1_048_576, description="Bytes of a frame's headers."
    )
    headers_max: int = Field(default=100, ge=10, le=10_000, description="Headers of a frame.")
    body_bytes_max: int = Field(
        default=1_048_576, ge=1, le=67_108_864, description="Bytes of a frame's body."
    )
    request_bytes_budget: int = Field(
        default=67_108_864,
        ge=1_048_576,
        description="Bytes of frames that are incomplete or wait, of all connections; above it "
        "connections are read in turn.",
    )
    subscriptions_max: int = Field(
        default=1_000, ge=1, le=100_000, description="Subscriptions of one connection."
    )
    unacked_max: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Messages that a subscription may have in flight, whatever its prefetch-count.",
    )
    transactions_max: int = Field(
        default=100, ge=1, le=10_000, description="Open transactions of one connection."
    )
    transaction_bytes_max: int = Field(
        default=8_388_608,
        ge=1_024,
        description="Bytes that the transactions of one connection may gather.",
    )
    heart_beat_ms_min: int = Field(
        default=2_000,
        ge=0,
        le=3_600_000,
        description="Shortest time between heart-beats, of either side; 0 for no heart-beats. "
        "They are looked at once a second.",
    )
    positions_max: int = Field(
        default=100_000,
        ge=1,
        description="Positions of durable subscriptions to topics, one for each partition.",
    )
