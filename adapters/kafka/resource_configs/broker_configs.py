"""Configs of a broker in DescribeConfigs: this node's settings, under Kafka's names.

Only settings with a counterpart in Kafka are listed. All are read-only: they are set in the
config file and take effect after a restart.
"""

from collections.abc import Iterable
from typing import Final

from adapters.kafka.config import KafkaConfig
from adapters.kafka.session import Session
from gateway.config.settings import Settings
from gateway.topics.config_specs import ConfigType
from gateway.topics.configs import ConfigEntry, ConfigSource, ConfigSynonym

_MS_PER_MINUTE: Final = 60_000


def describe_broker(session: Session) -> list[ConfigEntry]:
    """Return the node's settings, sorted by name."""
    node = session.node
    settings = [
        ("advertised.listeners", ConfigType.STRING, f"PLAINTEXT://{session.advertised}", ""),
        ("broker.id", ConfigType.INT, node.placement.node_id, "`[node] node_id`"),
        ("node.id", ConfigType.INT, node.placement.node_id, "`[node] node_id`"),
        *_node_settings(node.settings),
        *_listener_settings(node.config),
    ]
    return [_entry(name, kind, value, text) for name, kind, value, text in sorted(settings)]


_Setting = tuple[str, ConfigType, object, str]


def _node_settings(settings: Settings) -> Iterable[_Setting]:
    topics, groups, broker = settings.topic_defaults, settings.groups, settings.broker
    yield from (
        ("auto.create.topics.enable", ConfigType.BOOLEAN, topics.auto_create,
         "`[topic_defaults] auto_create`"),
        ("default.replication.factor", ConfigType.INT, 1, "Every partition has one replica."),
        ("delete.topic.enable", ConfigType.BOOLEAN, True, "Topics can always be deleted."),
        ("group.initial.rebalance.delay.ms", ConfigType.INT, groups.initial_rebalance_delay_ms,
         "`[groups] initial_rebalance_delay_ms`"),
        ("group.max.session.timeout.ms", ConfigType.INT, groups.session_timeout_ms_max,
         "`[groups] session_timeout_ms_max`"),
        ("group.max.size", ConfigType.INT, groups.group_size_max, "`[groups] group_size_max`"),
        ("group.min.session.timeout.ms", ConfigType.INT, groups.session_timeout_ms_min,
         "`[groups] session_timeout_ms_min`"),
        ("log.dirs", ConfigType.STRING, settings.node.data_dir, "`[node] data_dir`"),
        ("num.partitions", ConfigType.INT, topics.partitions, "`[topic_defaults] partitions`"),
        ("offset.metadata.max.bytes", ConfigType.INT, groups.offset_metadata_bytes_max,
         "`[groups] offset_metadata_bytes_max`"),
        ("offsets.retention.minutes", ConfigType.INT,
         groups.offsets_retention_ms // _MS_PER_MINUTE, "`[groups] offsets_retention_ms`"),
        ("producer.id.expiration.ms", ConfigType.INT, broker.producer_id_expiration_ms,
         "`[broker] producer_id_expiration_ms`"),
    )  # fmt: skip


def _listener_settings(config: KafkaConfig) -> Iterable[_Setting]:
    yield from (
        ("connections.max.idle.ms", ConfigType.LONG, config.idle_s_max * 1000,
         "`[adapters.kafka] idle_s_max`"),
        ("fetch.max.bytes", ConfigType.INT, config.fetch_bytes_max,
         "`[adapters.kafka] fetch_bytes_max`"),
        ("listeners", ConfigType.STRING, f"PLAINTEXT://{config.bind}",
         "`[adapters.kafka] bind`"),
        ("max.connections", ConfigType.INT, config.connections_max,
         "`[adapters.kafka] connections_max`"),
        ("max.connections.per.ip", ConfigType.INT, config.connections_per_ip_max,
         "`[adapters.kafka] connections_per_ip_max`"),
        ("socket.request.max.bytes", ConfigType.INT, config.request_bytes_max,
         "`[adapters.kafka] request_bytes_max`"),
    )  # fmt: skip


def _entry(name: str, kind: ConfigType, value: object, text: str) -> ConfigEntry:
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return ConfigEntry(
        name,
        shown,
        is_default=False,
        source=ConfigSource.NODE,
        type=kind,
        documentation=text,
        synonyms=(ConfigSynonym(name, shown, ConfigSource.NODE),),
        is_read_only=True,
    )
