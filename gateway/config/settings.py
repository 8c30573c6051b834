"""Headgate's settings: one frozen section per table of the config file.

Every limit is a number and none is infinite; the unit is the last word of a key's name. The
section of an adapter or a storage is a ``Config`` class beside its code that derives from
``FrozenConfig``, or from ``ListenerConfig`` when it listens on TCP. ``gateway.config.loader``
makes a ``Settings`` of a file, the environment and ``--set``; docs/configuration.md lists every
key.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    PrivateAttr,
    SerializeAsAny,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from gateway.config.admission import ListenersConfig
from gateway.config.auth import AuthConfig
from gateway.config.base import (
    BindAddress,
    FrozenConfig,
)
from gateway.config.exchanges import DeclaredBinding, DeclaredExchange, ExchangeConfig
from gateway.config.log import LogConfig
from gateway.config.metadata import MetadataConfig
from gateway.config.metrics import MetricsConfig
from gateway.config.names import DeclaredMode, TopicNameText
from gateway.config.oauth import OauthConfig
from gateway.config.otel import OtelConfig
from gateway.config.queues import DeclaredQueue, DelayConfig, QueueConfig
from gateway.config.quotas import DeclaredQuota
from gateway.config.transactions import TransactionsConfig
from gateway.config.users import DeclaredUser

_MIB = 1024 * 1024
SHARDS_MAX = 1024  # one slot each, see gateway.slots
_DAY_MS = 86_400_000


def _to_config_values(table: object) -> object:
    """Convert TOML's numbers and booleans to the text of topic configs."""
    if not isinstance(table, Mapping):
        return table
    return {
        key: str(value).lower() if isinstance(value, bool | int | float) else value
        for key, value in table.items()
    }


TopicConfigs = Annotated[
    dict[str, str],
    BeforeValidator(_to_config_values),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        }
    ),
]


class NodeConfig(FrozenConfig):
    """This process."""

    data_dir: Path = Field(
        default=Path("data"), description="Folder of all stored data; created if missing."
    )
    node_id: int = Field(
        default=1, ge=1, le=2**31 - 1, description="This node's number in its cluster."
    )
    shards: int | None = Field(
        default=None,
        ge=1,
        le=SHARDS_MAX,
        description="Shards of a new data directory, a power of two; without it 1. A directory "
        "keeps its number: `headgate reshard` converts it.",
    )
    insecure: bool = Field(
        default=False,
        description="Allow listening beyond loopback without authentication.",
    )
    disk_reserve_bytes: int = Field(
        default=4 * 1_048_576,
        ge=0,
        description="Size of a file that reserves room for a start on a full disk: then it is "
        "removed and the node serves reads while retention and deletes make room. 0: none.",
    )
    declared: DeclaredMode = Field(
        default="create",
        description="Effect of `[[topics]]`, `[[queues]]` and `[[exchanges]]` at a start: `create` "
        "makes what is missing; `enforce` also changes what differs. Neither deletes anything.",
    )
    drain_s_max: int = Field(
        default=10, ge=0, le=3_600, description="Seconds after SIGTERM for requests in flight."
    )

    @field_validator("shards")
    @classmethod
    def _check_shards(cls, shards: int | None) -> int | None:
        if shards is not None and shards & (shards - 1):
            msg = "must be a power of two"
            raise ValueError(msg)
        return shards


class AdminConfig(FrozenConfig):
    """The admin HTTP endpoint: health, metrics, and the REST calls that the commands use."""

    bind: BindAddress = Field(
        default="127.0.0.1:9644", description="Address of the admin HTTP endpoint."
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        description="Public DNS names accepted for `/metrics` and other paths without a token; IP "
        "addresses and names that are not public are always accepted.",
    )


class StorageConfig(FrozenConfig):
    """Storage of batches. The other keys of `[storage]` are the adapter's own: ``options``."""

    adapter: str = Field(
        default="segment_log",
        description="`segment_log` (files), `s3` (a bucket), `memory` (nothing is kept) or a "
        "plug-in's name.",
    )
    options: SerializeAsAny[InstanceOf[FrozenConfig]] = Field(
        default_factory=FrozenConfig, exclude=True
    )


class MemoryConfig(FrozenConfig):
    """Topics in memory: those with `storage.class=memory`, and transient queues of AMQP."""

    bytes_max: int = Field(
        default=256 * _MIB,
        ge=_MIB,
        description="Bytes that topics in memory take, all of them; above it, producers to them "
        "are refused.",
    )


class BrokerConfig(FrozenConfig):
    """Bounds of the write and the read path, shared by all protocols."""

    wal_queued_bytes_max: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        description="Appended bytes that are not yet durable; above it, producers are paused. "
        "With storage in S3 201326592.",
    )
    wal_queued_bytes_low: int = Field(
        default=32 * _MIB,
        ge=0,
        description="Paused producers go on when it is below this again. With storage in S3 "
        "134217728.",
    )
    fetch_bytes_budget: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        description="Bytes of all read answers that clients have not received yet.",
    )
    producer_ids_max: int = Field(
        default=100_000,
        ge=1,
        description="Idempotent producers remembered; the longest idle are dropped first.",
    )
    producer_id_expiration_ms: int = Field(
        default=_DAY_MS, ge=1, description="Milliseconds after which an idle one is forgotten."
    )
    producer_snapshot_bytes: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        description="Bytes appended between snapshots of producer state; bounds the time of a "
        "start.",
    )

    @model_validator(mode="after")
    def _check_marks(self) -> Self:
        if self.wal_queued_bytes_low > self.wal_queued_bytes_max:
            msg = "wal_queued_bytes_low is above wal_queued_bytes_max"
            raise ValueError(msg)
        return self


class TopicDefaults(FrozenConfig):
    """Defaults of topics where their creator sets nothing."""

    partitions: int = Field(
        default=1,
        ge=1,
        le=100_000,
        description="Partitions of a topic created without a number.",
    )
    auto_create: bool = Field(
        default=True, description="Create a topic when it is written to or requested."
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
    """Deletion of records beyond a topic's time or size limit."""

    interval_ms: int = Field(
        default=300_000, ge=100, description="Milliseconds between two passes over all topics."
    )


class CompactionConfig(FrozenConfig):
    """Keeping the latest record of each key, in topics with `cleanup.policy=compact`."""

    interval_ms: int = Field(
        default=15_000, ge=10, description="Milliseconds between two checks of all such topics."
    )
    map_bytes_max: int = Field(
        default=64 * _MIB,
        ge=32 * _MIB,
        description="Memory for the keys of one round, 32 bytes each; more keys take more rounds.",
    )
    bytes_per_s_max: int = Field(
        default=32 * _MIB,
        ge=_MIB,
        description="Bytes examined per second; a record counts as at least 256.",
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
    rebalance_timeout_ms_min: int = Field(
        default=6_000,
        ge=1,
        le=1_800_000,
        description="Shortest time in milliseconds for members to rejoin, also when one asks for "
        "less or gives none.",
    )
    groups_max: int = Field(
        default=100_000,
        ge=1,
        description="Groups with members, and as many with offsets; more are refused.",
    )
    group_size_max: int = Field(
        default=1_000, ge=1, le=100_000, description="Members of one group."
    )
    consumer_session_timeout_ms: int = Field(
        default=45_000,
        ge=1_000,
        le=1_800_000,
        description="Milliseconds without a heartbeat after which a member of a group of the new "
        "consumer protocol (KIP-848) is removed.",
    )
    consumer_heartbeat_interval_ms: int = Field(
        default=5_000,
        ge=100,
        le=60_000,
        description="Milliseconds between two heartbeats of a member of such a group.",
    )
    consumer_names_max: int = Field(
        default=20_000,
        ge=1,
        le=200_000,
        description="Topic names in the different subscriptions of the members of such a group.",
    )
    consumer_patterns_max: int = Field(
        default=32,
        ge=0,
        le=1_000,
        description="Different patterns of topic names that the members of such a group have.",
    )
    offset_metadata_bytes_max: int = Field(
        default=4_096,
        ge=0,
        le=_MIB,
        description="Bytes of metadata text of a committed offset.",
    )
    offsets_retention_ms: int = Field(
        default=7 * _DAY_MS,
        ge=1,
        description="Milliseconds for which an empty group's offsets are kept.",
    )
    transaction_offsets_max: int = Field(
        default=10_000, ge=1, description="Offsets that one transaction commits."
    )
    pending_offsets_max: int = Field(
        default=500_000, ge=1, description="Offsets of all open transactions of the node."
    )
    pending_offsets_bytes_max: int = Field(
        default=256 * _MIB,
        ge=_MIB,
        description="Bytes of them: of the names of their groups, and of their metadata texts.",
    )

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.session_timeout_ms_min > self.session_timeout_ms_max:
            msg = "session_timeout_ms_min is above session_timeout_ms_max"
            raise ValueError(msg)
        return self


class TopicConfig(FrozenConfig):
    """One topic of `[[topics]]`; it is made at the start when it is not there."""

    name: TopicNameText = Field(description="The topic's name.")
    declared: DeclaredMode | None = Field(
        default=None,
        description="`create` or `enforce` for this one; `node.declared` if unset.",
    )
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
    listeners: ListenersConfig = ListenersConfig()
    storage: StorageConfig = StorageConfig()
    memory: MemoryConfig = MemoryConfig()
    metadata: MetadataConfig = MetadataConfig()
    broker: BrokerConfig = BrokerConfig()
    topic_defaults: TopicDefaults = TopicDefaults()
    retention: RetentionConfig = RetentionConfig()
    compaction: CompactionConfig = CompactionConfig()
    groups: GroupsConfig = GroupsConfig()
    transactions: TransactionsConfig = TransactionsConfig()
    queue: QueueConfig = QueueConfig()
    exchange: ExchangeConfig = ExchangeConfig()
    delay: DelayConfig = DelayConfig()
    auth: AuthConfig = AuthConfig()
    oauth: OauthConfig = OauthConfig()
    log: LogConfig = LogConfig()
    metrics: MetricsConfig = MetricsConfig()
    otel: OtelConfig = OtelConfig()
    adapters: dict[str, SerializeAsAny[InstanceOf[FrozenConfig]]] = Field(default_factory=dict)
    topics: tuple[TopicConfig, ...] = ()
    queues: tuple[DeclaredQueue, ...] = ()
    exchanges: tuple[DeclaredExchange, ...] = ()
    bindings: tuple[DeclaredBinding, ...] = ()
    users: tuple[DeclaredUser, ...] = ()
    quotas: tuple[DeclaredQuota, ...] = ()

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def origins(self) -> dict[str, str]:
        """File, variable or option of the command line that set a key, by the dotted key."""
        return self._origins

    def with_origins(self, origins: Mapping[str, str]) -> Self:
        """Return these settings, with the places where their keys were set."""
        found = self.model_copy()
        found._origins = dict(origins)  # noqa: SLF001 - of its own class
        return found

    @property
    def enforces(self) -> bool:
        """Whether a start changes topics or queues that are there and differ."""
        modes = {one.declared for one in self.topics} | {one.declared for one in self.queues}
        modes |= {one.declared for one in self.exchanges}
        return "enforce" in modes or (None in modes and self.node.declared == "enforce")
