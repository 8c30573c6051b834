"""Table of topic configs: Kafka's names, types, ranges and defaults.

Some are honoured, and appear in ``gateway.topics.configs.TopicSettings``; others are there
because tools set them: they are kept and shown, and their documentation says what holds
instead. Source of names, ranges and defaults: Apache Kafka 4.2, LogConfig and TopicConfig;
those that Kafka does not have say so.
"""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_DAY_MS: Final = 86_400_000
_DELAY_MS_MAX: Final = 3_653 * _DAY_MS  # ten years
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{0,19}\.?[0-9]{0,19}")

Check = Callable[[str], str | None]


class ConfigType(IntEnum):
    """Type of a value, numbered as in Kafka's DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class TopicConfigSpec(NamedTuple):
    """Topic config. ``check`` returns the fault of a value, or None.

    ``node_name`` is what Kafka calls the same config of a broker; empty when it has none.
    """

    type: ConfigType
    default: str
    node_name: str
    documentation: str
    check: Check


def split_list(value: str) -> list[str]:
    """Return the items of a config of type LIST."""
    return [item.strip() for item in value.split(",") if item.strip()]


def _number(form: re.Pattern[str], low: float, high: float) -> Check:
    def check(value: str) -> str | None:
        if not form.fullmatch(value) or not any(char.isdigit() for char in value):
            return "is not a number"
        number = int(value) if form is _INTEGER else float(value)
        return None if low <= number <= high else f"is not {low} to {high}"

    return check


def one_of(*choices: str) -> Check:
    """Return a check that a value is one of some texts."""

    def check(value: str) -> str | None:
        return None if value in choices else f"is not one of {', '.join(choices)}"

    return check


def _policies(value: str) -> str | None:
    policies = split_list(value)
    if (value and not policies) or set(policies) - {"delete", "compact", "queue"}:
        return "is not a list of delete, compact, queue"
    if {"compact", "queue"} <= set(policies):
        return "has both compact and queue, which contradict each other"
    return None


def any_text(_value: str) -> str | None:
    """Accept any value."""
    return None


def long_config(
    default: int, low: int, node_name: str, documentation: str, high: int = INT64_MAX
) -> TopicConfigSpec:
    """Return the specification of a number of 64 bits, ``low`` to ``high``."""
    check = _number(_INTEGER, low, high)
    return TopicConfigSpec(ConfigType.LONG, str(default), node_name, documentation, check)


def int_config(
    default: int, low: int, node_name: str, documentation: str, high: int = INT32_MAX
) -> TopicConfigSpec:
    """Return the specification of a number of 32 bits, ``low`` to ``high``."""
    check = _number(_INTEGER, low, high)
    return TopicConfigSpec(ConfigType.INT, str(default), node_name, documentation, check)


def bool_config(default: str, node_name: str, documentation: str) -> TopicConfigSpec:
    """Return the specification of `true` or `false`."""
    check = one_of("true", "false")
    return TopicConfigSpec(ConfigType.BOOLEAN, default, node_name, documentation, check)


_KEPT: Final = "Kept and shown, without effect: "
_NO_TIERS: Final = _KEPT + "there is no tiered storage of Kafka's kind."
_NO_REPLICATION: Final = _KEPT + "there is no replication."
_SHARED_LOG: Final = _KEPT + "all topics share one log, whose files [storage] describes."

SPECS: Final[Mapping[str, TopicConfigSpec]] = {
    "archive.hold": TopicConfigSpec(
        ConfigType.STRING,
        "",
        "",
        "A group whose committed offsets retention and compaction do not pass, within "
        "hold.bytes.max: who archives the topic. Where it has committed nothing, all that is "
        "there stays. Empty: nobody is waited for. Not in Kafka.",
        any_text,
    ),
    "cleanup.policy": TopicConfigSpec(
        ConfigType.LIST,
        "delete",
        "log.cleanup.policy",
        "`delete`: what is older or more than retention.ms and retention.bytes allow goes. "
        "`compact`: of each key the latest record stays; records need a key. `queue`: what all "
        "queue groups have settled goes after queue.keep.ms. Several may be named, but not "
        "compact beside queue. Empty: nothing goes.",
        _policies,
    ),
    "compression.gzip.level": int_config(
        -1, -1, "compression.gzip.level", _KEPT + "see compression.type.", 9
    ),
    "compression.lz4.level": int_config(
        9, 1, "compression.lz4.level", _KEPT + "see compression.type.", 17
    ),
    "compression.type": TopicConfigSpec(
        ConfigType.STRING,
        "producer",
        "compression.type",
        "Batches stay compressed as their producer has done it, whatever is set here; other "
        "values than `producer` are kept and shown, without effect.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    "compression.zstd.level": int_config(
        3, -131_072, "compression.zstd.level", _KEPT + "see compression.type.", 22
    ),
    "delay.enable": bool_config(
        "false",
        "",
        "Whether records wait that have a header `deliver-at` (decimal unix milliseconds) in the "
        "future, of Kafka producers and of plug-ins; readers see them when they are due. Messages "
        "that other protocols delay wait whatever is set here. Not in Kafka.",
    ),
    "delay.max.ms": long_config(
        _DELAY_MS_MAX,
        0,
        "",
        "Milliseconds that a message may wait at most, whatever protocol it came by; what is "
        "due later is refused. Not in Kafka.",
        10 * _DELAY_MS_MAX,
    ),
    "delete.retention.ms": long_config(
        _DAY_MS,
        0,
        "log.cleaner.delete.retention.ms",
        "Milliseconds for which compaction keeps a record without a value, so that readers who "
        "are behind learn that its key is gone.",
    ),
    "expiry.enable": bool_config(
        "false",
        "",
        "Whether a Kafka consumer gets no records any more whose header `expires-at` (decimal "
        "unix milliseconds) has passed. Queues and MQTT honour it whatever is set here. Not in "
        "Kafka.",
    ),
    "file.delete.delay.ms": long_config(60_000, 0, "log.segment.delete.delay.ms", _SHARED_LOG),
    "flush.messages": long_config(
        INT64_MAX,
        1,
        "log.flush.interval.messages",
        _KEPT + "[storage] flush is for all topics.",
    ),
    "flush.ms": long_config(
        INT64_MAX, 0, "log.flush.interval.ms", _KEPT + "[storage] flush is for all topics."
    ),
    "follower.replication.throttled.replicas": TopicConfigSpec(
        ConfigType.LIST, "", "", _NO_REPLICATION, any_text
    ),
    "hold.bytes.max": long_config(
        10 * 1024**3,
        -1,
        "",
        "Bytes of a partition that queue groups, delays and the archive may hold back from "
        "retention; above it, producers are refused. -1 for no limit. Not in Kafka.",
    ),
    "index.interval.bytes": int_config(4_096, 0, "log.index.interval.bytes", _SHARED_LOG),
    "key.index": bool_config(
        "false",
        "",
        "Whether keys are indexed, so that records are found by key without reading all. Not "
        "in Kafka.",
    ),
    "leader.replication.throttled.replicas": TopicConfigSpec(
        ConfigType.LIST, "", "", _NO_REPLICATION, any_text
    ),
    "local.retention.bytes": long_config(-2, -2, "log.local.retention.bytes", _NO_TIERS),
    "local.retention.ms": long_config(-2, -2, "log.local.retention.ms", _NO_TIERS),
    "max.compaction.lag.ms": long_config(
        INT64_MAX,
        1,
        "log.cleaner.max.compaction.lag.ms",
        "Milliseconds after which a record is compacted whatever min.cleanable.dirty.ratio "
        "says, once its segment of the log is closed.",
    ),
    "max.message.bytes": int_config(
        1_048_588, 0, "message.max.bytes", "Bytes of the largest record batch, compressed."
    ),
    "memory.bytes.max": long_config(
        64 * 1024**2,
        0,
        "",
        "Bytes of a partition with storage.class=memory. Above it the oldest batches go; with "
        "cleanup.policy=queue, producers are refused. Not in Kafka.",
    ),
    "message.timestamp.after.max.ms": long_config(
        3_600_000,
        0,
        "log.message.timestamp.after.max.ms",
        "Milliseconds by which a record's timestamp may be ahead of this node's clock; not "
        "checked with LogAppendTime.",
    ),
    "message.timestamp.before.max.ms": long_config(
        INT64_MAX,
        0,
        "log.message.timestamp.before.max.ms",
        "Milliseconds by which a record's timestamp may be behind this node's clock; not "
        "checked with LogAppendTime.",
    ),
    "message.timestamp.type": TopicConfigSpec(
        ConfigType.STRING,
        "CreateTime",
        "log.message.timestamp.type",
        "Whether a record's timestamp is its producer's (CreateTime) or the time at which it "
        "was appended (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
    ),
    "min.cleanable.dirty.ratio": TopicConfigSpec(
        ConfigType.DOUBLE,
        "0.5",
        "log.cleaner.min.cleanable.ratio",
        "Share of a partition's bytes that must be new before it is compacted again.",
        _number(_DECIMAL, 0, 1),
    ),
    "min.compaction.lag.ms": long_config(
        0,
        0,
        "log.cleaner.min.compaction.lag.ms",
        "Milliseconds for which every record stays, also when a later one has its key.",
    ),
    "min.insync.replicas": int_config(
        1,
        1,
        "min.insync.replicas",
        "Replicas that must have a record before it is acknowledged; not above the number of "
        "nodes.",
    ),
    "preallocate": bool_config("false", "log.preallocate", _SHARED_LOG),
    "queue.keep.ms": long_config(
        0,
        0,
        "",
        "Milliseconds for which cleanup.policy=queue keeps what all queue groups have settled. "
        "Not in Kafka.",
    ),
    "records.validate": TopicConfigSpec(
        ConfigType.STRING,
        "frame",
        "",
        "What of a produced batch is checked beside its header and CRC. `frame`: that a compressed "
        "one begins as its codec says. `full`: that all its records can be decoded; topics that "
        "are compacted or of queues have compressed batches checked so in any case. Not in Kafka.",
        one_of("frame", "full"),
    ),
    "remote.log.copy.disable": bool_config("false", "", _NO_TIERS),
    "remote.log.delete.on.disable": bool_config("false", "", _NO_TIERS),
    "remote.storage.enable": TopicConfigSpec(
        ConfigType.BOOLEAN,
        "false",
        "",
        "Only `false`: there is no tiered storage of Kafka's kind.",
        one_of("false"),
    ),
    "retention.bytes": long_config(
        -1,
        -INT64_MAX - 1,
        "log.retention.bytes",
        "Bytes of a partition above which its oldest batches go; negative for no limit.",
    ),
    "retention.ms": long_config(
        7 * _DAY_MS,
        -1,
        "log.retention.ms",
        "Milliseconds after which a partition's oldest batches go, by their newest record; -1 "
        "for no limit.",
    ),
    "segment.bytes": int_config(1024**3, 1024**2, "log.segment.bytes", _SHARED_LOG),
    "segment.index.bytes": int_config(10 * 1024**2, 4, "log.index.size.max.bytes", _SHARED_LOG),
    "segment.jitter.ms": long_config(0, 0, "log.roll.jitter.ms", _SHARED_LOG),
    "segment.ms": long_config(7 * _DAY_MS, 1, "log.roll.ms", _SHARED_LOG),
    "storage.class": TopicConfigSpec(
        ConfigType.STRING,
        "node",
        "",
        "`node`: the topic is stored as [storage] says. `memory`: it is kept in memory, within "
        "memory.bytes.max, and is empty after a restart; no transactions, no compaction. Set when "
        "a topic is made, and not changed. Not in Kafka.",
        one_of("node", "memory"),
    ),
    "unclean.leader.election.enable": bool_config(
        "false", "unclean.leader.election.enable", _NO_REPLICATION
    ),
}
