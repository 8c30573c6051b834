"""Settings of the RocketMQ endpoint: ``[adapters.rocketmq]``."""

from typing import ClassVar, Final

from pydantic import Field, field_validator

from gateway.config.base import Address, BindAddress, ListenerConfig, parse_address
from gateway.config.request_budget import (
    RequestBytesBudget,
    RequestBytesMax,
    RequestStallSeconds,
    UnauthenticatedRequestBytesMax,
)

_MIB: Final = 1024 * 1024
_NAME: Final = r"^[a-zA-Z0-9_-]{1,100}$"


class RemotingListener(ListenerConfig):
    """Settings that both listeners have."""

    authenticates_users: ClassVar[bool] = True

    idle_s_max: int = Field(
        default=120,
        ge=1,
        le=86_400,
        description="Seconds without data before a connection is closed; clients send heartbeats "
        "each 30.",
    )


class NameServerConfig(RemotingListener):
    """Settings of the name server."""

    bind: BindAddress = Field(default="127.0.0.1:9876", description="Address to listen on.")
    enabled: bool = Field(default=True, description="Whether to listen.")
    brokers_max: int = Field(
        default=256, ge=1, le=10_000, description="Foreign brokers that may register here."
    )
    broker_topics_max: int = Field(
        default=20_000, ge=1, le=1_000_000, description="Topics of one foreign broker."
    )
    broker_expiry_s: int = Field(
        default=120,
        ge=1,
        le=3_600,
        description="Seconds after its last registration in which a foreign broker is routed to.",
    )


class RocketMqConfig(RemotingListener):
    """Settings of the RocketMQ adapter. Every limit has a number; none is infinite."""

    bind: BindAddress = Field(default="127.0.0.1:10911", description="Address to listen on.")
    advertise: BindAddress | None = Field(
        default=None,
        description="Address that routes and message ids name, an IP address and a port; by "
        "default `bind`, and where that is a wildcard the address that the client used.",
    )
    cluster_name: str = Field(
        default="DefaultCluster", pattern=_NAME, description="Name of the cluster in routes."
    )
    broker_name: str = Field(
        default="headgate",
        pattern=_NAME,
        description="Name of this broker in routes; not to be changed while consumers have "
        "stored offsets of their own by it.",
    )
    nameserver: NameServerConfig = Field(default=NameServerConfig(), description="Name server.")
    request_bytes_max: RequestBytesMax = 16 * _MIB
    unauthenticated_request_bytes_max: UnauthenticatedRequestBytesMax = 512 * 1024
    request_bytes_budget: RequestBytesBudget = Field(default=256 * _MIB, ge=_MIB)
    request_stall_s_max: RequestStallSeconds = 2
    requests_pending_max: int = Field(
        default=4_096,
        ge=1,
        le=1_000_000,
        description="Unanswered requests of one connection, pulls that wait for messages "
        "included; more are answered with SYSTEM_BUSY.",
    )
    unacknowledged_bytes_max: int = Field(
        default=32 * _MIB,
        ge=_MIB,
        description="Bytes of sends of one connection that are not stored yet; above it the "
        "connection is not read.",
    )
    message_bytes_max: int = Field(
        default=4 * _MIB,
        ge=1024,
        le=1024 * _MIB,
        description="Bytes of a message's body, decompressed, and of a batch.",
    )
    pull_bytes_max: int = Field(
        default=256 * 1024,
        ge=1024,
        le=64 * _MIB,
        description="Bytes of the messages of one pull, unless the first alone is larger.",
    )
    pull_messages_max: int = Field(
        default=1_024, ge=1, le=100_000, description="Messages of one pull."
    )
    pull_wait_ms_max: int = Field(
        default=60_000,
        ge=0,
        le=3_600_000,
        description="Milliseconds that a pull may wait for messages.",
    )
    default_topic_queues: int = Field(
        default=8,
        ge=1,
        le=10_000,
        description="Queues of a topic that is made when it is first sent to, unless the "
        "producer asks for fewer.",
    )
    client_expiry_s: int = Field(
        default=120,
        ge=1,
        le=3_600,
        description="Seconds after its last heartbeat in which a client is a member of its groups.",
    )
    client_groups_max: int = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description="Memberships of all clients in groups; about 1 KB of memory each.",
    )

    @field_validator("advertise")
    @classmethod
    def _check_advertise(cls, text: str | None) -> str | None:
        if text is not None:
            _check_ip(parse_address(text))
        return text


def _check_ip(address: Address) -> None:
    """Refuse a name: message ids have room for an IP address only."""
    from ipaddress import ip_address

    ip_address(address.host)
