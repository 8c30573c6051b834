"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: what the handlers check themselves."""

from typing import Any

import pytest

from adapters.kafka.codecs.consumer_group_codec import (
    ConsumerGroupHeartbeatRequest,
    DescribeRequest,
)
from adapters.kafka.errors import ErrorCode
from adapters.kafka.handlers import consumer_group_describe, consumer_group_heartbeat
from gateway.groups.consumer.model import NO_PARTITIONS
from gateway.groups.consumer.subscriptions import NAMES_MAX
from tests.adapters.kafka.codecs import kio_codec
from tests.adapters.kafka.handlers.group_fixture import GROUP, GroupRig
from tests.adapters.kafka.handlers.handler_fixture import Rig

JOIN = ConsumerGroupHeartbeatRequest(
    group_id=GROUP,
    member_id="m",
    member_epoch=0,
    instance_id=None,
    rack_id=None,
    rebalance_timeout_ms=60_000,
    names=frozenset({"t"}),
    regex=None,
    assignor=None,
    owned=NO_PARTITIONS,
)


@pytest.fixture
async def rig(rig: Rig) -> GroupRig:
    await rig.topic("t", 3)
    return await GroupRig.open(rig)


async def beat(rig: GroupRig, request: ConsumerGroupHeartbeatRequest) -> Any:
    answer = consumer_group_heartbeat.handle(request, rig.rig.session, 1)
    body = answer if isinstance(answer, bytes) else await answer
    kind = kio_codec.response_class(consumer_group_heartbeat.API_KEY, 1)
    return kio_codec.decode(kind, body)


@pytest.mark.parametrize("field", ["group_id", "member_id", "instance_id", "rack_id"])
@pytest.mark.parametrize("text", ["", " \t"])
async def test_ids_are_not_blank(rig: GroupRig, field: str, text: str) -> None:
    answer = await beat(rig, JOIN._replace(**{field: text}))

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message.endswith("can't be empty.")


async def test_a_member_names_a_bounded_number_of_topics(rig: GroupRig) -> None:
    names = [f"t{number}" for number in range(NAMES_MAX + 1)]

    answer = await beat(rig, JOIN._replace(names=frozenset(names)))

    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not rig.groups.consumer_groups.by_name
