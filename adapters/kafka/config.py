"""Settings of the Kafka listener: ``[adapters.kafka]``."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from adapters.kafka.codec import ELEMENTS_MAX
from gateway.config.base import BindAddress, ListenerConfig
from gateway.config.request_budget import (
    RequestBytesBudget,
    RequestBytesMax,
    RequestStallSeconds,
    UnauthenticatedRequestBytesMax,
)
from gateway.config.settings import Settings
from gateway.model import DEFAULT_NAMESPACE

_MIB = 1024 * 1024


class KafkaListener(ListenerConfig):
    """Settings of a Kafka listener: advertised address, authentication, namespace."""

    authenticates_users: ClassVar[bool] = True

    advertise: BindAddress | None = Field(
        default=None,
        description="Address that clients are told to connect to; by default the one they used.",
    )
    authentication: Literal["any", "sasl", "certificate"] = Field(
        default="any",
        description="Authentication of clients. `any`: by SASL or a certificate, if login is "
        "required; `sasl`, `certificate`: always, and by this only.",
    )
    namespace: str = Field(
        default=DEFAULT_NAMESPACE,
        pattern=r"^[a-zA-Z0-9_-]{1,100}$",
        description="Namespace of its clients' topics and groups, invisible in other namespaces.",
    )

    # A constant in the base class; here it depends on a key.
    @property
    def refuses_strangers(self) -> bool:  # type: ignore[override]
        """Whether every client must authenticate, even if login is not required."""
        return self.authentication != "any"

    @model_validator(mode="after")
    def _check_authentication(self) -> Self:
        if self.authentication == "certificate" and (
            self.tls_client_ca is None or self.tls_client_user == "none"
        ):
            msg = 'authentication = "certificate" needs tls_client_ca, and a tls_client_user'
            raise ValueError(msg)
        return self


class KafkaListenerConfig(KafkaListener):
    """One of several listeners. With any of these, `adapters.kafka.bind` is not used."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9-]{0,30}$",
        description="Its name in metrics and logs, after `kafka-`.",
    )
    bind: BindAddress = Field(description="Address to listen on.")


class KafkaConfig(KafkaListener):
    """Settings of the Kafka adapter. Every limit has a number; none is infinite."""

    bind: BindAddress = Field(default="127.0.0.1:9092", description="Address to listen on.")
    listeners: tuple[KafkaListenerConfig, ...] = Field(
        default=(),
        description="Several listeners in place of `bind`, each with its own address, TLS, "
        "authentication and namespace.",
    )
    connections_max_reauth_ms: int = Field(
        default=0,
        ge=0,
        le=2**31 - 1,
        description="Milliseconds after which a connection must log in again (KIP-368), or until "
        "its token ends, if that is sooner; 0: never. Clients that do not are closed.",
    )
    request_bytes_max: RequestBytesMax = 100 * _MIB
    unauthenticated_request_bytes_max: UnauthenticatedRequestBytesMax = 512 * 1024
    request_bytes_budget: RequestBytesBudget = Field(default=256 * _MIB, ge=_MIB)
    request_stall_s_max: RequestStallSeconds = 2
    request_elements_max: int = Field(
        default=ELEMENTS_MAX,
        ge=100,
        description="Topics, partitions and other array elements of one request; a larger request "
        "closes the connection.",
    )
    requests_queued_max: int = Field(
        default=256,
        ge=1,
        description="Unanswered requests of one connection; above it the connection is not read.",
    )
    unacknowledged_bytes_max: int = Field(
        default=32 * _MIB,
        ge=_MIB,
        description="Produced bytes of one connection that are not stored yet; above it the "
        "connection is not read. With storage in S3 134217728.",
    )
    fetch_bytes_max: int = Field(
        default=55 * _MIB,
        ge=1024,
        le=1024 * _MIB,
        description="Bytes of one Fetch response, even if the client allows more.",
    )
    fetch_wait_ms_max: int = Field(
        default=300_000,
        ge=0,
        description="Milliseconds that a Fetch request may wait for data.",
    )
    fetch_sessions_max: int = Field(
        default=1_000,
        ge=0,
        le=100_000,
        description="Incremental fetch sessions of all clients, Kafka's "
        "`max.incremental.fetch.session.cache.slots`; without a free one every fetch is full.",
    )
    fetch_session_partitions_max: int = Field(
        default=200_000,
        ge=0,
        le=10_000_000,
        description="Partitions of all fetch sessions; about 0.5 KB of memory each.",
    )

    share_sessions_max: int = Field(
        default=2_000,
        ge=0,
        le=100_000,
        description="Sessions of the members of share groups, Kafka's "
        "`group.share.max.share.sessions`; more are refused.",
    )
    share_session_partitions_max: int = Field(
        default=200_000,
        ge=0,
        le=10_000_000,
        description="Partitions of all sessions of share groups; about 0.5 KB of memory each.",
    )
    connection_share_sessions_max: int = Field(
        default=16, ge=0, le=100_000, description="Such sessions on one connection."
    )
    connection_share_partitions_max: int = Field(
        default=10_000,
        ge=0,
        le=10_000_000,
        description="Partitions of all such sessions on one connection.",
    )

    @property
    def listens_itself(self) -> bool:
        """Whether the adapter listens on ``bind``."""
        return not self.listeners

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [listener.name for listener in self.listeners]
        if len(set(names)) < len(names):
            msg = "listeners: two have the same name"
            raise ValueError(msg)
        return self

    def warnings(self, settings: Settings) -> list[str]:  # noqa: ARG002 - the checker's signature
        """Return warnings about keys that have no effect."""
        if self.listens_itself:
            return []
        fields = KafkaListener.model_fields.items()
        unused = [key for key, field in fields if getattr(self, key) != field.default]
        return [
            f"{key}: is for adapters.kafka.bind, which is not used beside listeners"
            for key in unused
            if key != "bind"
        ]
