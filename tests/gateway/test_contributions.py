"""Contributions of adapters: what is refused, and what topics have of them."""

from uuid import uuid4

import pytest

from gateway.clock import ManualClock
from gateway.config.settings import TopicDefaults
from gateway.contributions import Contribution, Contributions, InvalidContribution
from gateway.errors import InvalidConfig, InvalidTopicName
from gateway.metadata.recovery import restore_topics
from gateway.metadata.store import MetadataStore
from gateway.model import PartitionIdentity, TopicName
from gateway.topics.config_specs import SPECS, int_config
from gateway.topics.manager import TopicManager

ECHO = int_config(5, 1, "", "Number of echoes.", 10)
ORDERS = TopicName("default", "orders")
STREAM = TopicName("default", "__lines_seen")
LINES = Contribution(internal_topics=(STREAM.name,), topic_configs={"lines.echo": ECHO})


async def topics_of(metadata: MetadataStore, *, lines: bool = True) -> TopicManager:
    topics = TopicManager(
        metadata,
        defaults=TopicDefaults(),
        clock=ManualClock(),
        contributions=Contributions({"lines": LINES} if lines else {}),
    )
    await topics.load()
    return topics


@pytest.mark.parametrize(
    ("by_adapter", "words"),
    [
        (
            {
                "a": Contribution(internal_topics=("__a_b_seen",)),
                "a_b": Contribution(internal_topics=("__a_b_seen",)),
            },
            "internal topic '__a_b_seen' is contributed by adapter 'a' and by adapter 'a_b'",
        ),
        (
            {"lines": Contribution(internal_topics=("__lines_x", "__lines_x"))},
            "internal topic '__lines_x' is contributed by adapter 'lines' and by adapter 'lines'",
        ),
        (
            {"lines": Contribution(internal_topics=("__cursors",))},
            "adapter 'lines': internal topic '__cursors' does not begin with '__lines_'",
        ),
        (
            {"lines": Contribution(internal_topics=("__lines_a b",))},
            "adapter 'lines': internal topic '__lines_a b'",
        ),
        (
            {"lines": Contribution(topic_configs={"retention.ms": ECHO})},
            "topic config 'retention.ms' is contributed by the kernel and by adapter 'lines'",
        ),
        (
            {"lines": Contribution(topic_configs={"echo": ECHO})},
            "adapter 'lines': topic config 'echo' does not begin with 'lines.'",
        ),
        (
            {"lines": Contribution(topic_configs={"lines.echo": ECHO._replace(default="11")})},
            "adapter 'lines': topic config 'lines.echo': default '11' is not 1 to 10",
        ),
    ],
)
def test_a_contribution_that_cannot_be_used_is_refused(
    by_adapter: dict[str, Contribution], words: str
) -> None:
    with pytest.raises(InvalidContribution) as caught:
        Contributions(by_adapter)
    assert words in str(caught.value)


def test_each_adapter_has_headers_that_clients_cannot_set() -> None:
    built_in = {"dlq.", "kafka.", "mqtt.", "sqs.", "amqp.", "rocketmq."}
    assert set(Contributions().header_prefixes) == built_in
    assert set(Contributions({"lines": LINES}).header_prefixes) == built_in | {"lines."}


async def test_an_internal_topic_is_its_adapters_alone(metadata: MetadataStore) -> None:
    topics = await topics_of(metadata)
    with pytest.raises(InvalidTopicName, match="reserved for internal use"):
        await topics.create(STREAM)
    assert (await topics.create(STREAM, partitions=1, internal=True)).is_internal


async def test_a_stream_that_nobody_contributes_is_not_made(metadata: MetadataStore) -> None:
    topics = await topics_of(metadata)
    with pytest.raises(InvalidTopicName, match="__lines_sene is in no adapter's CONTRIBUTION"):
        await topics.create(TopicName("default", "__lines_sene"), internal=True)


async def test_names_of_built_in_adapters_that_are_off_are_kept_back(
    metadata: MetadataStore,
) -> None:
    topics = await topics_of(metadata)
    with pytest.raises(InvalidTopicName, match="reserved for internal use"):
        await topics.create(TopicName("default", "__mqtt_sessions"))


@pytest.mark.parametrize(("by_adapter", "is_internal"), [({"lines": LINES}, True), ({}, False)])
async def test_a_recovery_knows_internal_topics(
    metadata: MetadataStore, by_adapter: dict[str, Contribution], *, is_internal: bool
) -> None:
    names = [STREAM, TopicName("default", "__mqtt_sessions"), ORDERS]
    identities = [PartitionIdentity(1 + at, uuid4(), name, 0) for at, name in enumerate(names)]
    rows = await restore_topics(metadata, identities, contributions=Contributions(by_adapter))
    assert {row.name: row.is_internal for row in rows} == dict(
        zip(names, (is_internal, True, False), strict=True)
    )


async def test_a_topic_has_the_configs_that_are_contributed(metadata: MetadataStore) -> None:
    topics = await topics_of(metadata)
    topic = await topics.create(ORDERS, configs={"lines.echo": " 7 "})
    assert topic.settings.contributed == {"lines.echo": "7"}
    described = {entry.name: entry for entry in topics.describe_configs(topic)}
    assert described.keys() == SPECS.keys() | {"lines.echo"}
    assert described["lines.echo"].value == "7"
    await topics.alter_configs(ORDERS, {"lines.echo": None})
    assert topic.settings.contributed == {"lines.echo": "5"}
    with pytest.raises(InvalidConfig, match=r"lines\.echo: '11' is not 1 to 10"):
        await topics.alter_configs(ORDERS, {"lines.echo": "11"})


async def test_configs_of_an_adapter_that_is_off_stay(metadata: MetadataStore) -> None:
    before = await topics_of(metadata)
    await before.create(ORDERS, configs={"lines.echo": "7"})

    without = await topics_of(metadata, lines=False)
    await without.alter_configs(ORDERS, {"retention.ms": "9"})
    with pytest.raises(InvalidConfig, match=r"unknown topic config 'lines\.echo'"):
        await without.alter_configs(ORDERS, {"lines.echo": "8"})

    after = await topics_of(metadata)
    assert after.get(ORDERS).configs == {"lines.echo": "7", "retention.ms": "9"}
    assert after.get(ORDERS).settings.contributed == {"lines.echo": "7"}
