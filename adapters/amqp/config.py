"""Settings of the AMQP endpoint: ``[adapters.amqp]``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from pydantic import Field, field_validator, model_validator

from adapters.amqp.names import DEFAULT_VHOST
from gateway.config.base import BindAddress, ListenerConfig
from gateway.config.request_budget import RequestBytesBudget, RequestStallSeconds

FRAME_BYTES_MIN: Final = 4_096  # the specification's; clients of before 4.1 send it
VHOST_BYTES_MAX: Final = 255


_NOT_OF_HTTP: Final = frozenset(
    {
        "connections_per_ip_max",
        "handshake_s_max",
        "idle_s_max",
        "proxy_protocol",
        "tls_client_ca",
        "tls_client_pattern",
        "tls_client_user",
    }
)
"""Keys of listeners that have no meaning for the HTTP API."""


class ManagementConfig(ListenerConfig):
    """RabbitMQ's HTTP API."""

    authenticates_users: ClassVar[bool] = True

    enabled: bool = Field(
        default=True,
        description="Whether to listen, where this table is there; without it only a node of "
        "which nothing is configured in `[adapters.amqp]` listens.",
    )
    bind: BindAddress = Field(default="127.0.0.1:15672", description="Address to listen on.")
    connections_max: int = Field(
        default=64, ge=1, le=10_000, description="Open connections; more are closed at once."
    )
    body_bytes_max: int = Field(
        default=33_554_432,
        ge=65_536,
        le=1_073_741_824,
        description="Largest body of a request, a definitions file; other calls have lower bounds.",
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="Names of the public DNS by which it may be called, without a port.",
    )

    @model_validator(mode="after")
    def _check_served(self) -> Self:
        if unserved := sorted(self.model_fields_set & _NOT_OF_HTTP):
            msg = f"the HTTP API has no {unserved[0]}"
            raise ValueError(msg)
        return self


class AmqpConfig(ListenerConfig):
    """Settings of the AMQP endpoint. Every limit has a number; none is infinite."""

    authenticates_users: ClassVar[bool] = True
    when_unconfigured: ClassVar[Mapping[str, Any]] = {"management": {}}

    bind: BindAddress = Field(default="127.0.0.1:5672", description="Address to listen on.")
    vhosts: tuple[str, ...] = Field(
        default=(DEFAULT_VHOST,),
        min_length=1,
        max_length=1_000,
        description="Vhosts that clients may open: `/` is the default namespace, any other the "
        "namespace of its name.",
    )
    product: str = Field(
        default="Headgate",
        max_length=255,
        description="Product in the server's properties, by which some clients decide what to do.",
    )
    product_version: str = Field(
        default="", max_length=255, description="Version there; empty: the gateway's."
    )
    channels_max: int = Field(
        default=2_047, ge=1, le=65_535, description="Open channels of a connection."
    )
    frame_bytes_max: int = Field(
        default=131_072,
        ge=FRAME_BYTES_MIN,
        le=16_777_216,
        description="Largest frame, its 8 bytes of overhead included.",
    )
    heartbeat_s: int = Field(
        default=60, ge=0, le=65_535, description="Heartbeat offered to clients; 0 for none."
    )
    message_bytes_max: int = Field(
        default=16_777_216,
        ge=1_024,
        le=536_870_912,
        description="Largest body of a message; that of its topic applies too.",
    )
    consumers_max: int = Field(
        default=1_000, ge=1, le=100_000, description="Consumers of a channel."
    )
    unacked_max: int = Field(
        default=100_000,
        ge=1,
        le=1_000_000,
        description="Messages that a channel has in flight at most, whatever its prefetch.",
    )
    consumer_timeout_s: int = Field(
        default=1_800,
        ge=60,
        le=43_200,
        description="Seconds after which a message that is not acknowledged returns to its queue, "
        "and its channel is closed.",
    )
    pipelined_max: int = Field(
        default=1_000,
        ge=1,
        le=100_000,
        description="Frames of a connection that wait for an earlier one; then it is not read.",
    )
    transaction_bytes_max: int = Field(
        default=67_108_864,
        ge=1_048_576,
        le=1_073_741_824,
        description="Publishes and settlements that the transactions of a connection gather.",
    )
    management: ManagementConfig | None = Field(
        default=None, description="RabbitMQ's HTTP API; without it there is none."
    )
    definitions: Path | None = Field(
        default=None,
        description="Definitions file of RabbitMQ (`definitions.json`) that a start imports.",
    )
    request_bytes_budget: RequestBytesBudget = Field(default=134_217_728, ge=67_108_864)
    request_stall_s_max: RequestStallSeconds = 2

    @field_validator("vhosts")
    @classmethod
    def _check_vhosts(cls, vhosts: tuple[str, ...]) -> tuple[str, ...]:
        for vhost in vhosts:
            if not 1 <= len(vhost.encode()) <= VHOST_BYTES_MAX:
                msg = f"{vhost[:80]!r} is no vhost"
                raise ValueError(msg)
        return vhosts
