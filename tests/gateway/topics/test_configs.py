"""Topic configs: which there are, what they may be, where a value comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidConfig
from gateway.topics.config_specs import SPECS, ConfigType
from gateway.topics.configs import (
    ConfigSource,
    ConfigSynonym,
    check_configs,
    describe,
    parse_settings,
)

# Apache Kafka 4.2, LogConfig: name -> default. What a describe of a new topic answers.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
# What Kafka does not have.
OWN_DEFAULTS = {
    "archive.hold": "",
    "delay.enable": "false",
    "delay.max.ms": "315619200000",
    "expiry.enable": "false",
    "hold.bytes.max": "10737418240",
    "key.index": "false",
    "memory.bytes.max": "67108864",
    "queue.keep.ms": "0",
    "records.validate": "frame",
    "storage.class": "node",
}


def test_a_new_topic_is_described_as_by_kafka() -> None:
    entries = describe({}, {})

    defaults = KAFKA_DEFAULTS | OWN_DEFAULTS
    assert {entry.name: entry.value for entry in entries} == defaults
    assert [entry.name for entry in entries] == sorted(defaults)
    assert all(entry.is_default and entry.documentation for entry in entries)


def test_every_default_is_legal() -> None:
    defaults = KAFKA_DEFAULTS | OWN_DEFAULTS
    assert check_configs(defaults) == defaults


def test_a_value_comes_from_the_nearest_place() -> None:
    entries = {
        entry.name: entry
        for entry in describe(
            {"retention.ms": "2", "segment.ms": "3"}, {"retention.ms": "1", "flush.ms": "4"}
        )
    }

    retention = entries["retention.ms"]
    assert (retention.value, retention.source, retention.is_default) == (
        "1",
        ConfigSource.TOPIC,
        False,
    )
    assert retention.synonyms == (
        ConfigSynonym("retention.ms", "1", ConfigSource.TOPIC),
        ConfigSynonym("log.retention.ms", "2", ConfigSource.NODE),
        ConfigSynonym("log.retention.ms", "604800000", ConfigSource.DEFAULT),
    )
    assert entries["segment.ms"].source is ConfigSource.NODE
    assert entries["flush.ms"].source is ConfigSource.TOPIC


def test_settings_are_what_holds() -> None:
    settings = parse_settings(
        {"retention.ms": "2", "max.message.bytes": "100"},
        {
            "retention.ms": "-1",
            "retention.bytes": "7",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "8",
            "message.timestamp.after.max.ms": "9",
        },
    )

    assert settings.retention_ms == -1
    assert settings.retention_bytes == 7
    assert settings.message_bytes_max == 100
    assert settings.log_append_time
    assert (settings.timestamp_before_ms_max, settings.timestamp_after_ms_max) == (8, 9)
    assert (settings.deletes, settings.compacts, settings.is_queue) == (True, False, False)


def test_settings_of_compaction_and_holders() -> None:
    settings = parse_settings(
        {"hold.bytes.max": "-1"},
        {
            "cleanup.policy": "compact,delete",
            "delete.retention.ms": "1",
            "min.cleanable.dirty.ratio": ".25",
            "min.compaction.lag.ms": "2",
            "max.compaction.lag.ms": "3",
            "queue.keep.ms": "4",
            "key.index": "true",
            "delay.enable": "true",
            "delay.max.ms": "5",
            "expiry.enable": "true",
            "archive.hold": "lake",
        },
    )

    assert (settings.deletes, settings.compacts, settings.is_queue) == (True, True, False)
    assert settings.delete_retention_ms == 1
    assert settings.dirty_ratio_min == 0.25
    assert (settings.compaction_lag_ms_min, settings.compaction_lag_ms_max) == (2, 3)
    assert (settings.hold_bytes_max, settings.queue_keep_ms) == (-1, 4)
    assert settings.key_index
    assert (settings.delays, settings.delay_ms_max, settings.expires) == (True, 5, True)
    assert settings.archive_hold == "lake"
    assert parse_settings({}, {"cleanup.policy": "queue"}).is_queue


def test_an_empty_value_goes_before_the_nodes_default() -> None:
    defaults = {"archive.hold": "lake"}

    assert parse_settings(defaults, {}).archive_hold == "lake"
    assert parse_settings(defaults, {"archive.hold": ""}).archive_hold == ""


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("retention.m", "did you mean retention.ms"),
        ("max.messages.bytes", "did you mean max.message.bytes"),
        ("message.timestamp.difference.max.ms", "did you mean message.timestamp."),
        ("delay.on", "unknown topic config 'delay.on'"),
        ("", "unknown topic config ''"),
    ],
)
def test_an_unknown_config_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InvalidConfig, match=hint):
        check_configs({name: "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "1_000"),
        ("retention.ms", "٣"),
        ("retention.ms", ""),
        ("retention.ms", "1.5"),
        ("max.message.bytes", "2147483648"),
        ("max.message.bytes", "-1"),
        ("min.insync.replicas", "0"),
        ("min.insync.replicas", "2"),  # there is one node
        ("segment.bytes", "1048575"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "."),
        ("compression.type", "brotli"),
        ("message.timestamp.type", "createtime"),
        ("cleanup.policy", ","),
        ("cleanup.policy", "keep"),
        ("cleanup.policy", "compact,queue"),
        ("hold.bytes.max", "-2"),
        ("queue.keep.ms", "-1"),
        ("delay.max.ms", "-1"),
        ("delay.enable", "yes"),
        ("preallocate", "yes"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "x" * 40_000),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        check_configs({name: value})


@pytest.mark.parametrize(
    ("name", "value", "normal"),
    [
        ("retention.ms", " 5 ", "5"),
        ("retention.ms", "-1", "-1"),
        ("retention.bytes", "-9223372036854775808", "-9223372036854775808"),
        ("preallocate", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", ".25", ".25"),
        ("max.message.bytes", "0", "0"),
    ],
)
def test_a_value_is_kept_in_normal_form(name: str, value: str, normal: str) -> None:
    assert check_configs({name: value}) == {name: normal}


@pytest.mark.parametrize("policy", ["compact", "delete,compact", "compact, delete"])
def test_a_topic_may_be_compacted_where_the_storage_can(policy: str) -> None:
    assert parse_settings({}, check_configs({"cleanup.policy": policy})).compacts

    with pytest.raises(InvalidConfig, match="cannot compact"):
        check_configs({"cleanup.policy": policy}, can_compact=False)
    assert check_configs({"cleanup.policy": "delete"}, can_compact=False)


def test_replicas_are_bounded_by_nodes() -> None:
    assert check_configs({"min.insync.replicas": "3"}, nodes=3)
    with pytest.raises(InvalidConfig, match="number of nodes, 3"):
        check_configs({"min.insync.replicas": "4"}, nodes=3)


@given(name=st.sampled_from(sorted(SPECS)), value=st.text(max_size=30) | st.integers().map(str))
def test_what_was_checked_can_be_parsed(name: str, value: str) -> None:
    try:
        checked = check_configs({name: value})
    except InvalidConfig:
        return

    parse_settings({}, checked)
    parse_settings(checked, {})
    if SPECS[name].type in {ConfigType.INT, ConfigType.LONG}:
        assert -(2**63) <= int(checked[name]) < 2**63
    assert check_configs(checked) == checked
