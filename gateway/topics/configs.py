"""Topic configs: checked, described, and parsed into ``TopicSettings``.

Values are texts, as Kafka's are; a topic keeps only what differs from the node's defaults
(`[topic_defaults] configs`), and those keep only what differs from Kafka's.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from gateway.errors import InvalidConfig
from gateway.topics.config_specs import SPECS, ConfigType, TopicConfigSpec, split_list

VALUE_CHARS_MAX: Final = 32_767
NO_SPECS: Final[Mapping[str, TopicConfigSpec]] = MappingProxyType({})


class ConfigSource(IntEnum):
    """Source of a value, numbered as in Kafka's DescribeConfigs."""

    TOPIC = 1
    NODE = 4  # the config file's [topic_defaults]
    DEFAULT = 5
    GROUP = 8  # set for one group


class ConfigSynonym(NamedTuple):
    """Possible source of a value."""

    name: str
    value: str
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """Description of a topic config. The first of ``synonyms`` is in effect."""

    name: str
    value: str
    is_default: bool
    source: ConfigSource
    type: ConfigType
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]
    is_read_only: bool = False
    is_sensitive: bool = False


class TopicSettings(NamedTuple):
    """Effective values of the supported topic configs. Negative: no limit."""

    deletes: bool
    compacts: bool
    is_queue: bool
    retention_ms: int
    retention_bytes: int
    message_bytes_max: int
    log_append_time: bool
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int
    compression_type: str
    cleanup_policy: str
    delete_retention_ms: int
    dirty_ratio_min: float
    compaction_lag_ms_min: int
    compaction_lag_ms_max: int
    hold_bytes_max: int
    queue_keep_ms: int
    key_index: bool
    delays: bool
    delay_ms_max: int
    expires: bool
    archive_hold: str
    looks_inside: bool
    in_memory: bool
    """Whether it ends with the process. Bounds on bytes are at most ``memory.bytes.max``."""
    has_write_steps: bool
    """Whether steps of the write path look at records: so far, where records may be delayed."""
    contributed: Mapping[str, str]
    """Values of the configs that adapters contribute, by name."""


def check_names(names: Iterable[str], specs: Mapping[str, TopicConfigSpec] = SPECS) -> None:
    """Raise ``InvalidConfig`` for an unknown name, with the nearest known one in its text."""
    for name in names:
        if name not in specs:
            near = get_close_matches(name[:249], specs, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            msg = f"unknown topic config {name[:80]!r}{hint}"
            raise InvalidConfig(msg)


def merge_configs(
    kept: Mapping[str, str],
    changes: Mapping[str, str | None],
    specs: Mapping[str, TopicConfigSpec],
) -> tuple[dict[str, str], dict[str, str]]:
    """Return a topic's configs after changes: those of adapters that are off, and the others.

    The former stay as they are; None restores a default. Error: ``InvalidConfig`` for an unknown
    name, one set back to its default too.
    """
    check_names(changes, specs)
    unknown = {key: kept[key] for key in kept.keys() - specs.keys() - changes.keys()}
    merged = {**kept, **changes}
    overrides = {
        key: value for key, value in merged.items() if value is not None and key not in unknown
    }
    return unknown, overrides


def check_configs(
    configs: Mapping[str, str],
    specs: Mapping[str, TopicConfigSpec] = SPECS,
    *,
    nodes: int = 1,
    can_compact: bool = True,
) -> dict[str, str]:
    """Return ``configs`` with their values in normal form.

    ``nodes`` bounds ``min.insync.replicas``; ``can_compact`` says whether the storage can, or
    the topic is an internal one, which keeps itself small. Errors: ``InvalidConfig``, which
    names the config and what is wrong.
    """
    check_names(configs, specs)
    checked = {name: _check_one(name, value, specs[name]) for name, value in configs.items()}
    if int(checked.get("min.insync.replicas", 1)) > nodes:
        msg = f"min.insync.replicas is above the number of nodes, {nodes}"
        raise InvalidConfig(msg)
    if not can_compact and "compact" in split_list(checked.get("cleanup.policy", "")):
        msg = "cleanup.policy: this node's storage adapter cannot compact topics"
        raise InvalidConfig(msg)
    return checked


def parse_settings(
    defaults: Mapping[str, str],
    overrides: Mapping[str, str],
    contributed: Mapping[str, TopicConfigSpec] = NO_SPECS,
) -> TopicSettings:
    """Return the settings of checked configs; overrides precede the node's defaults."""

    def value(name: str) -> str:
        return overrides.get(name, defaults.get(name, SPECS[name].default))

    policies = split_list(value("cleanup.policy"))
    in_memory = value("storage.class") == "memory"
    retention_bytes = int(value("retention.bytes"))
    hold_bytes_max = int(value("hold.bytes.max"))
    if in_memory:
        bytes_max = int(value("memory.bytes.max"))
        retention_bytes = lowest_limit(retention_bytes, bytes_max)
        hold_bytes_max = lowest_limit(hold_bytes_max, bytes_max)
    return TopicSettings(
        deletes="delete" in policies or (in_memory and "queue" not in policies),
        compacts="compact" in policies,
        is_queue="queue" in policies,
        retention_ms=int(value("retention.ms")),
        retention_bytes=retention_bytes,
        message_bytes_max=int(value("max.message.bytes")),
        log_append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_ms_max=int(value("message.timestamp.before.max.ms")),
        timestamp_after_ms_max=int(value("message.timestamp.after.max.ms")),
        compression_type=value("compression.type"),
        cleanup_policy=value("cleanup.policy"),
        delete_retention_ms=int(value("delete.retention.ms")),
        dirty_ratio_min=float(value("min.cleanable.dirty.ratio")),
        compaction_lag_ms_min=int(value("min.compaction.lag.ms")),
        compaction_lag_ms_max=int(value("max.compaction.lag.ms")),
        hold_bytes_max=hold_bytes_max,
        queue_keep_ms=int(value("queue.keep.ms")),
        key_index=value("key.index") == "true",
        delays=value("delay.enable") == "true",
        delay_ms_max=int(value("delay.max.ms")),
        expires=value("expiry.enable") == "true",
        archive_hold=value("archive.hold"),
        looks_inside=value("records.validate") == "full",
        in_memory=in_memory,
        has_write_steps=value("delay.enable") == "true",
        contributed={
            name: overrides.get(name, defaults.get(name, spec.default))
            for name, spec in contributed.items()
        },
    )


def lowest_limit(limit: int, bytes_max: int) -> int:
    """Return a limit, negative for none, that is at most ``bytes_max``.

    >>> lowest_limit(-1, 100), lowest_limit(50, 100), lowest_limit(500, 100)
    (100, 50, 100)
    """
    return bytes_max if limit < 0 else min(limit, bytes_max)


def describe(
    defaults: Mapping[str, str],
    overrides: Mapping[str, str],
    specs: Mapping[str, TopicConfigSpec] = SPECS,
) -> list[ConfigEntry]:
    """Return all topic configs by name, with value and source."""
    return [
        _describe_one(name, spec, defaults.get(name), overrides.get(name))
        for name, spec in specs.items()
    ]


def _describe_one(
    name: str, spec: TopicConfigSpec, node_value: str | None, override: str | None
) -> ConfigEntry:
    node_name = spec.node_name or name
    synonyms = [ConfigSynonym(node_name, spec.default, ConfigSource.DEFAULT)]
    if node_value is not None:
        synonyms.insert(0, ConfigSynonym(node_name, node_value, ConfigSource.NODE))
    if override is not None:
        synonyms.insert(0, ConfigSynonym(name, override, ConfigSource.TOPIC))
    holding = synonyms[0]
    return ConfigEntry(
        name,
        holding.value,
        is_default=holding.source is ConfigSource.DEFAULT,
        source=holding.source,
        type=spec.type,
        documentation=spec.documentation,
        synonyms=tuple(synonyms),
    )


def _check_one(name: str, value: str, spec: TopicConfigSpec) -> str:
    normal = value.strip()
    if spec.type is ConfigType.BOOLEAN:
        normal = normal.lower()
    wrong = spec.check(normal) if len(normal) <= VALUE_CHARS_MAX else "is too long"
    if wrong:
        msg = f"topic config {name}: {normal[:80]!r} {wrong}"
        raise InvalidConfig(msg)
    return normal
