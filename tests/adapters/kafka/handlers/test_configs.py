"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from typing import Any, TypeAlias

import pytest
from kafka.protocol.admin import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

from adapters.kafka.errors import ErrorCode
from gateway.auth.ports import Operation
from gateway.groups.model import GroupName
from gateway.shares.group_configs import LOCK_MS
from tests.adapters.kafka.handlers.group_fixture import GroupRig
from tests.adapters.kafka.handlers.handler_fixture import NODE_ID, Rig, done_of

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Described: TypeAlias = DescribeConfigsRequest.DescribeConfigsResource
Altered: TypeAlias = AlterConfigsRequest.AlterConfigsResource
Changed: TypeAlias = IncrementalAlterConfigsRequest.AlterConfigsResource


async def describe(
    rig: Rig, kind: int, name: str, *, version: int = 4, keys: Any = None, **fields: Any
) -> Any:
    asked = Described(resource_type=kind, resource_name=name, configuration_keys=keys)
    answer = await rig.ask("describe_configs", version, resources=[asked], **fields)
    [result] = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_configs_say_where_they_come_from(rig: Rig, version: int) -> None:
    await rig.topic("t", retention_ms="1234")

    result = await describe(rig, TOPIC, "t", version=version)

    configs = {config.name: config for config in result.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1234", 1)
    assert configs["cleanup.policy"].config_source == 5
    assert configs["retention.ms"].synonyms == ()
    if version >= 3:
        assert (configs["retention.ms"].config_type, configs["cleanup.policy"].config_type) == (
            5,
            7,
        )
        assert configs["retention.ms"].documentation is None


async def test_synonyms_and_documentation_come_when_asked_for(rig: Rig) -> None:
    await rig.topic("t", retention_ms="1234")

    result = await describe(
        rig,
        TOPIC,
        "t",
        keys=["retention.ms"],
        include_synonyms=True,
        include_documentation=True,
    )

    [config] = result.configs
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        ("retention.ms", "1234", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert config.documentation


async def test_no_keys_are_all_keys(rig: Rig) -> None:
    await rig.topic("t")

    everything = await describe(rig, TOPIC, "t", keys=None)
    also = await describe(rig, TOPIC, "t", keys=[])

    assert len(everything.configs) == len(also.configs) > 20


@pytest.mark.parametrize("version", range(1, 5))
async def test_this_brokers_configs_are_read_only(rig: Rig, version: int) -> None:
    result = await describe(rig, BROKER, str(NODE_ID), version=version)

    configs = {config.name: config for config in result.configs}
    assert configs["node.id"].value == str(NODE_ID)
    assert configs["auto.create.topics.enable"].value == "true"
    assert configs["default.replication.factor"].value == "1"
    assert all(config.read_only for config in result.configs)


async def test_defaults_of_all_brokers_are_none(rig: Rig) -> None:
    result = await describe(rig, BROKER, "")

    assert (result.error_code.value, result.configs) == (ErrorCode.NONE, ())


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "never", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "8", ErrorCode.INVALID_REQUEST),
        (BROKER, "seven", ErrorCode.INVALID_REQUEST),
        (LOGGER, str(NODE_ID), ErrorCode.INVALID_REQUEST),
        (METRICS, "m", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_has_no_configs_gets_kafkas_code(
    rig: Rig, kind: int, name: str, code: ErrorCode
) -> None:
    result = await describe(rig, kind, name)

    assert result.error_code.value == code
    assert result.error_message


async def test_describing_needs_rights(rig: Rig) -> None:
    await rig.topic("t")
    await rig.allow("ada", Operation.READ, "topic", "")
    ada = rig.login("ada")

    topic = await describe(rig, TOPIC, "t", session=ada)
    broker = await describe(rig, BROKER, str(NODE_ID), session=ada)

    assert topic.error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.error_code.value == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def alter(rig: Rig, *resources: Altered, version: int = 2, **fields: Any) -> list[int]:
    answer = await rig.ask("alter_configs", version, resources=list(resources), **fields)
    return [response.error_code.value for response in answer.responses]


def replacing(name: str, kind: int = TOPIC, **configs: str | None) -> Altered:
    return Altered(
        resource_type=kind,
        resource_name=name,
        configs=[
            Altered.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


@pytest.mark.parametrize("version", range(3))
async def test_altering_replaces_all_overrides(rig: Rig, version: int) -> None:
    topic = await rig.topic("t", retention_ms="1234", max_message_bytes="5678")

    codes = await alter(rig, replacing("t", retention_ms="99"), version=version)

    assert codes == [ErrorCode.NONE]
    assert topic.configs == {"retention.ms": "99"}


async def test_altering_is_only_validated(rig: Rig) -> None:
    topic = await rig.topic("t", retention_ms="1234")

    assert await alter(rig, replacing("t"), validate_only=True) == [ErrorCode.NONE]
    assert topic.configs == {"retention.ms": "1234"}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (replacing("never"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (replacing("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (replacing("t", no_such="1"), ErrorCode.INVALID_CONFIG),
        (replacing("t", retention_ms=None), ErrorCode.INVALID_REQUEST),
        (replacing(str(NODE_ID), kind=BROKER), ErrorCode.INVALID_REQUEST),
        (replacing("m", kind=METRICS), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_altered_gets_kafkas_code(
    rig: Rig, resource: Altered, code: ErrorCode
) -> None:
    topic = await rig.topic("t", retention_ms="1234")

    assert await alter(rig, resource) == [code]
    assert topic.configs == {"retention.ms": "1234"}


async def test_a_resource_given_twice_is_refused(rig: Rig) -> None:
    await rig.topic("t")

    codes = await alter(rig, replacing("t"), replacing("t"))

    assert codes == [ErrorCode.INVALID_REQUEST] * 2


async def change(
    rig: Rig, *changes: tuple[str, int, str | None], version: int = 1, **fields: Any
) -> int:
    resource = Changed(
        resource_type=fields.pop("kind", TOPIC),
        resource_name=fields.pop("name", "t"),
        configs=[
            Changed.AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in changes
        ],
    )
    answer = await rig.ask("incremental_alter_configs", version, resources=[resource], **fields)
    code: int = answer.responses[0].error_code.value
    return code


@pytest.mark.parametrize("version", range(1, 5))
async def test_many_resources_are_described_as_few_are(rig: Rig, version: int) -> None:
    await rig.topic("t", retention_ms="1234")
    asked = [Described(resource_type=TOPIC, resource_name=n) for n in ("t", "nosuch") * 75]

    few = await rig.ask("describe_configs", version, resources=asked[:2])
    many = await rig.ask("describe_configs", version, resources=asked[:149])

    assert list(many.results) == [*list(few.results) * 74, few.results[0]]


@pytest.mark.parametrize("version", range(2))
async def test_single_configs_are_set_and_deleted(rig: Rig, version: int) -> None:
    topic = await rig.topic("t", retention_ms="1234", max_message_bytes="5678")

    code = await change(
        rig,
        ("retention.ms", DELETE, None),
        ("retention.bytes", SET, "99"),
        version=version,
    )

    assert code == ErrorCode.NONE
    assert topic.configs == {"max.message.bytes": "5678", "retention.bytes": "99"}


async def test_lists_grow_and_shrink(rig: Rig) -> None:
    topic = await rig.topic("t")
    name = "leader.replication.throttled.replicas"

    await change(rig, (name, APPEND, "0:1,1:1"))
    await change(rig, (name, APPEND, "1:1,2:1"))
    await change(rig, (name, SUBTRACT, "0:1"))

    assert topic.configs == {name: "1:1,2:1"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([("no.such", SUBTRACT, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "5")], ErrorCode.INVALID_REQUEST),
        (
            [("retention.ms", SET, "5"), ("retention.ms", SET, "6")],
            ErrorCode.INVALID_REQUEST,
        ),
        ([("retention.ms", SET, "5"), ("no.such", SET, "6")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", SET, "keep")], ErrorCode.INVALID_CONFIG),
    ],
)
async def test_a_wrong_change_changes_nothing(
    rig: Rig, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    topic = await rig.topic("t", retention_ms="1234")

    assert await change(rig, *changes) == code
    assert topic.configs == {"retention.ms": "1234"}


async def test_a_brokers_configs_are_not_changed_from_here(rig: Rig) -> None:
    code = await change(rig, ("num.partitions", SET, "3"), kind=BROKER, name=str(NODE_ID))

    assert code == ErrorCode.INVALID_REQUEST


async def test_throttles_of_a_broker_are_taken_and_ignored(rig: Rig) -> None:
    throttles = [
        ("leader.replication.throttled.rate", DELETE, None),
        ("follower.replication.throttled.rate", SET, "1000"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", DELETE, None),
    ]
    await rig.allow("ada", Operation.CREATE, "cluster", "")
    for name in (str(NODE_ID), ""):
        assert await change(rig, *throttles, kind=BROKER, name=name) == ErrorCode.NONE
    mixed = [*throttles, ("num.partitions", SET, "3")]
    refused = await change(rig, *mixed, kind=BROKER, name=str(NODE_ID))
    forbidden = await change(
        rig, *throttles, kind=BROKER, name=str(NODE_ID), session=rig.login("ada")
    )

    assert refused == ErrorCode.INVALID_REQUEST
    assert forbidden == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_policy_may_be_empty_and_then_nothing_goes(rig: Rig) -> None:
    topic = await rig.topic("t")

    code = await change(rig, ("cleanup.policy", SUBTRACT, "delete"))

    assert code == ErrorCode.NONE
    assert topic.configs == {"cleanup.policy": ""}
    assert not topic.settings.deletes
    assert not topic.settings.compacts


async def test_taking_away_a_config_of_old_kafkas_changes_nothing(rig: Rig) -> None:
    topic = await rig.topic("t", retention_ms="1234")
    old = "message.timestamp.difference.max.ms"

    assert await change(rig, (old, DELETE, None)) == ErrorCode.NONE
    assert await change(rig, (old, SET, "1000")) == ErrorCode.INVALID_CONFIG
    assert topic.configs == {"retention.ms": "1234"}


async def test_changing_needs_the_right(rig: Rig) -> None:
    await rig.topic("t")
    await rig.allow("ada", Operation.DESCRIBE_CONFIGS, "topic", "")

    code = await change(rig, ("retention.ms", SET, "1"), session=rig.login("ada"))

    assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_config_resources_are_topics_brokers_and_groups(rig: Rig) -> None:
    await rig.topic("t")
    await GroupRig.open(rig)
    configs, name = rig.node.shares.configs, GroupName("default", "g")
    await done_of(lambda on_done: configs.put(name, {LOCK_MS: "1000"}, on_done))

    everything = await rig.ask("list_config_resources", 1, resource_types=[])
    brokers = await rig.ask("list_config_resources", 1, resource_types=[BROKER])
    metrics = await rig.ask("list_config_resources", 0)
    unknown = await rig.ask("list_config_resources", 1, resource_types=[3])

    def pairs(answer: Any) -> set[tuple[str, int]]:
        return {(r.resource_name, r.resource_type) for r in answer.config_resources}

    assert pairs(everything) == {("t", TOPIC), (str(NODE_ID), BROKER), ("g", GROUP)}
    assert pairs(brokers) == {(str(NODE_ID), BROKER)}
    assert (metrics.config_resources, metrics.error_code.value) == ((), ErrorCode.NONE)
    assert unknown.error_code.value == ErrorCode.UNSUPPORTED_VERSION
