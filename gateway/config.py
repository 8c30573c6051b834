"""Headgate's settings: one frozen section per table of the config file.

Every limit is a number and none is infinite; the unit is the last word of a key's name. The
section of an adapter or a storage is a ``Config`` class beside its code that derives from
``FrozenConfig``, or from ``ListenerConfig`` when it listens on TCP. ``gateway.config_loader``
makes a ``Settings`` of a file, the environment and ``--set``; docs/configuration.md lists every
key.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    SerializeAsAny,
    field_validator,
    model_validator,
)

_MIB = 1024 * 1024
_DAY_MS = 86_400_000


class FrozenConfig(BaseModel):
    """A section of the config: cannot be changed once made, refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class Address(NamedTuple):
    """A host and a TCP port; port 0 lets the system choose when listening."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return ``host:port``, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it. A name other than localhost might be anything."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """Return the host and port of ``host:port`` or ``[ipv6]:port``. Errors: ``ValueError``.

    >>> parse_address("[::1]:9092")
    Address(host='::1', port=9092)
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if not colon or not bare or (":" in bare) != bracketed or not port.isascii():
        msg = "not host:port (an IPv6 address needs brackets, [::1]:9092)"
        raise ValueError(msg)
    if not port.isdigit() or int(port) > 65_535:  # noqa: PLR2004 - the largest TCP port
        msg = f"port {port!r} is not 0 to 65535"
        raise ValueError(msg)
    return Address(bare, int(port))


def _check_address(text: str) -> str:
    parse_address(text)
    return text


def _to_config_values(table: object) -> object:
    """Let TOML's numbers and booleans stand for the texts that topic configs are."""
    if not isinstance(table, Mapping):
        return table
    return {
        key: str(value).lower() if isinstance(value, bool | int | float) else value
        for key, value in table.items()
    }


BindAddress = Annotated[str, AfterValidator(_check_address)]
TopicConfigs = Annotated[dict[str, str], BeforeValidator(_to_config_values)]


class ListenerConfig(FrozenConfig):
    """What every adapter that listens on TCP has; its ``Config`` gives ``bind`` a default."""

    authenticates_users: ClassVar[bool] = False
    """Whether this adapter lets nobody in without a password once users are configured."""

    bind: BindAddress = Field(
        default="127.0.0.1:0",
        description="Address to listen on; port 0 lets the system choose.",
    )
    connections_max: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Open connections; more are closed at once."
    )
    connections_per_ip_max: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Open connections of one IP address."
    )
    tls_cert: Path | None = Field(
        default=None, description="PEM file with the certificate chain; set it to speak TLS."
    )
    tls_key: Path | None = Field(
        default=None, description="PEM file with the certificate's private key."
    )
    tls_client_ca: Path | None = Field(
        default=None,
        description="PEM file with authorities; clients must show a certificate of theirs.",
    )
    proxy_protocol: bool = Field(
        default=False,
        description="Expect a PROXY protocol header (v1 or v2) first, and believe its address.",
    )
    handshake_s_max: int = Field(
        default=10, ge=1, le=3_600, description="Seconds for TLS, the PROXY header and the first request."
    )
    idle_s_max: int = Field(
        default=600, ge=1, le=86_400, description="Seconds of silence before a close."
    )
    frame_s_max: int = Field(
        default=30,
        ge=1,
        le=3_600,
        description="Seconds in which a started frame must complete.",
    )

    @field_validator("bind")
    @classmethod
    def _check_bind(cls, text: str) -> str:
        """Hold for a subclass too that gives ``bind`` another default and type."""
        return _check_address(text)

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            msg = "tls_cert and tls_key need each other"
            raise ValueError(msg)
        if self.tls_client_ca is not None and self.tls_cert is None:
            msg = "tls_client_ca needs tls_cert and tls_key"
            raise ValueError(msg)
        return self


class NodeConfig(FrozenConfig):
    """This process."""

    data_dir: Path = Field(
        default=Path("data"), description="Folder of everything that is kept; made if missing."
    )
    node_id: int = Field(
        default=1, ge=1, le=2**31 - 1, description="This node's number in its cluster."
    )
    insecure: bool = Field(
        default=False,
        description="Allow listening beyond loopback with nobody being asked who they are.",
    )
    drain_s_max: int = Field(
        default=10, ge=0, le=3_600, description="Seconds that SIGTERM gives what is in flight."
    )


class AdminConfig(FrozenConfig):
    """The admin HTTP endpoint: health, metrics, and the REST calls that the commands use."""

    bind: BindAddress = Field(
        default="127.0.0.1:9644", description="Address of the admin HTTP endpoint."
    )


class StorageConfig(FrozenConfig):
    """Where batches live. The other keys of `[storage]` are the adapter's own: ``options``."""

    adapter: str = Field(
        default="segment_log",
        description="`segment_log` (files), `memory` (nothing is kept) or a plug-in's name.",
    )
    options: SerializeAsAny[InstanceOf[FrozenConfig]] = Field(
        default_factory=FrozenConfig, exclude=True
    )


class MetadataConfig(FrozenConfig):
    """Where topics, configs, users and rules live."""

    url: str = Field(
        default="sqlite",
        min_length=1,
        description="`sqlite` (a file in data_dir) or an SQLAlchemy URL, "
        "`postgresql+psycopg://...`.",
    )


class BrokerConfig(FrozenConfig):
    """Bounds of the write and the read path, shared by all protocols."""

    wal_queued_bytes_max: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        description="Appended octets that are not yet kept; above it, producers are paused.",
    )
    wal_queued_bytes_low: int = Field(
        default=32 * _MIB,
        ge=0,
        description="Paused producers go on when it is below this again.",
    )
    fetch_bytes_budget: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        description="Octets of all answers to reads that clients have not taken yet.",
    )
    producer_ids_max: int = Field(
        default=100_000,
        ge=1,
        description="Idempotent producers remembered; the idlest go first.",
    )
    producer_id_expiration_ms: int = Field(
        default=_DAY_MS, ge=1, description="Milliseconds after which an idle one is forgotten."
    )
    producer_snapshot_bytes: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        description="Octets appended between snapshots of producer state; bounds a start.",
    )

    @model_validator(mode="after")
    def _check_marks(self) -> Self:
        if self.wal_queued_bytes_low > self.wal_queued_bytes_max:
            msg = "wal_queued_bytes_low is above wal_queued_bytes_max"
            raise ValueError(msg)
        return self


class TopicDefaults(FrozenConfig):
    """What a topic is when its creator does not say."""

    partitions: int = Field(
        default=1, ge=1, le=100_000, description="Partitions of a topic that names no number."
    )
    auto_create: bool = Field(
        default=True, description="A topic that is written to, or asked for, comes to be."
    )
    partitions_max: int = Field(
        default=100_000, ge=1, le=1_000_000, description="Partitions on this node, all topics."
    )
    configs: TopicConfigs = Field(
        default_factory=dict,
        description="Topic configs by their Kafka names, as defaults for every topic: "
        '`"retention.ms" = 86400000`.',
    )


class RetentionConfig(FrozenConfig):
    """Removing what is older, or more, than topics allow."""

    interval_ms: int = Field(
        default=300_000, ge=100, description="Milliseconds between two passes over all topics."
    )


class GroupsConfig(FrozenConfig):
    """Consumer groups."""

    initial_rebalance_delay_ms: int = Field(
        default=100,
        ge=0,
        le=60_000,
        description="Milliseconds an empty group waits for more members to join.",
    )
    session_timeout_ms_min: int = Field(
        default=6_000, ge=1, description="Shortest session timeout a member may ask for."
    )
    session_timeout_ms_max: int = Field(
        default=1_800_000, ge=1, description="Longest session timeout a member may ask for."
    )
    group_size_max: int = Field(
        default=1_000, ge=1, le=100_000, description="Members of one group."
    )
    offset_metadata_bytes_max: int = Field(
        default=4_096, ge=0, le=_MIB, description="Octets of text beside a committed offset."
    )
    offsets_retention_ms: int = Field(
        default=7 * _DAY_MS,
        ge=1,
        description="Milliseconds for which an empty group's offsets are kept.",
    )

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.session_timeout_ms_min > self.session_timeout_ms_max:
            msg = "session_timeout_ms_min is above session_timeout_ms_max"
            raise ValueError(msg)
        return self


class AuthRule(FrozenConfig):
    """One rule of `[[auth.rules]]`: who may, or may not, do what to which resource."""

    principal: str = Field(
        default="*", min_length=1, description="User name, `ANONYMOUS`, or `*` for everybody."
    )
    protocol: str = Field(default="*", min_length=1, description="Adapter's name, or `*`.")
    operation: str = Field(
        default="all", min_length=1, description="`read`, `write`, `create`, ... or `all`."
    )
    resource: Literal["topic", "group", "cluster", "transactional_id"] = Field(
        default="topic", description="Kind of resource."
    )
    pattern: Literal["literal", "prefix", "any"] = Field(
        default="any", description="How `name` selects resources."
    )
    name: str = Field(
        default="", description="Name or prefix of the resource; empty for `any`."
    )
    effect: Literal["allow", "deny"] = Field(
        default="allow", description="A matching `deny` wins over every `allow`."
    )


class AuthConfig(FrozenConfig):
    """Who may do what. Without a rule, here or in the metadata, everything is allowed."""

    super_users: tuple[str, ...] = Field(
        default=(), description="Users who may do everything, whatever rules say."
    )
    rules: tuple[AuthRule, ...] = Field(
        default=(), description="Rules that stand beside those in the metadata store."
    )


class LogConfig(FrozenConfig):
    """Log lines on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is written."
    )
    format: Literal["console", "json"] = Field(
        default="console", description="`console` for people, `json` for collectors."
    )


class TopicConfig(FrozenConfig):
    """One topic of `[[topics]]`; it is made at the start when it is not there."""

    name: str = Field(min_length=1, max_length=249, description="The topic's name.")
    partitions: int | None = Field(
        default=None, ge=1, le=100_000, description="Its partitions; `topic_defaults` if unset."
    )
    configs: TopicConfigs = Field(
        default_factory=dict, description="Its topic configs, by their Kafka names."
    )


class Settings(FrozenConfig):
    """Everything that can be set, checked. ``adapters`` holds each adapter's own ``Config``."""

    node: NodeConfig = NodeConfig()
    admin: AdminConfig = AdminConfig()
    storage: StorageConfig = StorageConfig()
    metadata: MetadataConfig = MetadataConfig()
    broker: BrokerConfig = BrokerConfig()
    topic_defaults: TopicDefaults = TopicDefaults()
    retention: RetentionConfig = RetentionConfig()
    groups: GroupsConfig = GroupsConfig()
    auth: AuthConfig = AuthConfig()
    log: LogConfig = LogConfig()
    adapters: dict[str, SerializeAsAny[InstanceOf[FrozenConfig]]] = Field(default_factory=dict)
    topics: tuple[TopicConfig, ...] = ()

    def adapter_dump(self) -> dict[str, Any]:
        """Return the adapters' sections as plain tables, for printing."""
        return {name: config.model_dump(mode="json") for name, config in self.adapters.items()}
