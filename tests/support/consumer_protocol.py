"""Requests of the new consumer protocol (KIP-848) by a second codec (kio), and their answers."""

import importlib
import io
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.serial import entity_reader, entity_writer

from tests.support.kafka_wire import Connection

HEARTBEAT: Final = 68
DESCRIBE: Final = 69
VERSION: Final = 1
UNCHANGED: Final = timedelta(milliseconds=-1)


class Beat(NamedTuple):
    """Answer to a heartbeat: its error, and what the member may use (None: as before)."""

    error_code: int
    message: str | None
    member_id: str | None
    epoch: int
    assignment: frozenset[tuple[UUID, int]] | None


def heartbeat(
    connection: Connection,
    group: str,
    member_id: str,
    epoch: int,
    *,
    version: int = VERSION,
    names: Sequence[str] | None = None,
    regex: str | None = None,
    owned: Mapping[UUID, Sequence[int]] | None = None,
    rebalance_timeout: timedelta = UNCHANGED,
    instance_id: str | None = None,
    rack_id: str | None = None,
    assignor: str | None = None,
) -> Beat:
    """Send one ConsumerGroupHeartbeat."""
    m = importlib.import_module(f"kio.schema.consumer_group_heartbeat.v{version}.request")
    topics = None
    if owned is not None:
        topics = tuple(
            m.TopicPartitions(topic_id=uuid, partitions=tuple(numbers))
            for uuid, numbers in owned.items()
        )
    fields: dict[str, Any] = {"subscribed_topic_regex": regex} if version >= 1 else {}
    entity = m.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance_id,
        rack_id=rack_id,
        rebalance_timeout=rebalance_timeout,
        subscribed_topic_names=None if names is None else tuple(names),
        server_assignor=assignor,
        topic_partitions=topics,
        **fields,
    )
    answer = _call(connection, "consumer_group_heartbeat", HEARTBEAT, version, entity)
    assignment = None
    if answer.assignment is not None:
        assignment = frozenset(
            (topic.topic_id, number)
            for topic in answer.assignment.topic_partitions
            for number in topic.partitions
        )
    return Beat(
        int(answer.error_code),
        answer.error_message,
        answer.member_id,
        answer.member_epoch,
        assignment,
    )


def describe(connection: Connection, group: str, *, version: int = VERSION) -> Any:
    """Return kio's description of one group."""
    m = importlib.import_module(f"kio.schema.consumer_group_describe.v{version}.request")
    entity = m.ConsumerGroupDescribeRequest(
        group_ids=(group,), include_authorized_operations=False
    )
    answer = _call(connection, "consumer_group_describe", DESCRIBE, version, entity)
    (described,) = answer.groups
    return described


def _call(connection: Connection, name: str, key: int, version: int, entity: Any) -> Any:
    out = io.BytesIO(b"\0")  # the header's tagged fields
    out.seek(1)
    entity_writer(type(entity))(out, entity)
    body = connection.call(key, version, out.getvalue())
    m = importlib.import_module(f"kio.schema.{name}.v{version}.response")
    kind = next(
        value
        for key, value in vars(m).items()
        if key.lower() == f"{name.replace('_', '')}response"
    )
    answer, _ = entity_reader(kind)(body, 1)  # behind the header's tagged fields
    return answer
