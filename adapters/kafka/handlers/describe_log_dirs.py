"""DescribeLogDirs: API key 35, versions 1 to 4.

v2  flexible encoding (KIP-482)
v3  a top-level error code
v4  total and usable bytes of the volume (KIP-827)

There is one directory, the node's data directory. All partitions share its files; the size of a
partition is the size of its batches. Only partitions that this node owns are listed.
"""

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

from kafka.protocol.admin import DescribeLogDirsRequest, DescribeLogDirsResponse

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import Unauthorized
from gateway.model import TopicName
from gateway.topics.manager import Topic

API_KEY: Final = 35
VERSIONS: Final = range(1, 5)

UNKNOWN_BYTES: Final = -1
_PARTITIONS_PER_TURN: Final = 1_000  # then the loop runs other callbacks

_Result: TypeAlias = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic: TypeAlias = DescribeLogDirsResponse.DescribeLogDirsResult.DescribeLogDirsTopic
_Partition: TypeAlias = (
    DescribeLogDirsResponse.DescribeLogDirsResult.DescribeLogDirsTopic.DescribeLogDirsPartition
)


async def handle(
    request: DescribeLogDirsRequest, session: Session, version: int
) -> DescribeLogDirsResponse:
    """Return the size of each partition in the data directory."""
    try:
        check_cluster(session, Operation.DESCRIBE)
    except Unauthorized as error:
        return DescribeLogDirsResponse(version=version, error_code=code_of(error), results=[])
    data_dir = session.node.settings.node.data_dir
    total_bytes, usable_bytes = _volume(data_dir)
    topics = [
        await _describe(name, numbers, topic, session)
        for name, numbers, topic in _asked(request, session)
    ]
    result = _Result(
        error_code=ErrorCode.NONE,
        log_dir=str(data_dir.absolute()),
        topics=topics,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(version=version, error_code=ErrorCode.NONE, results=[result])


def _asked(
    request: DescribeLogDirsRequest, session: Session
) -> Iterable[tuple[str, Iterable[int], Topic]]:
    """Yield (name, partition numbers, topic); unknown topics are left out, as in Kafka."""
    topics = session.node.topics
    if request.topics is None:
        for topic in topics.topics(session.namespace, include_internal=True):
            yield topic.name.name, range(len(topic.partition_ids)), topic
        return
    for asked in request.topics:
        found = topics.find(TopicName(session.namespace, asked.topic))
        if found is not None:
            yield asked.topic, asked.partitions, found


async def _describe(
    name: str, numbers: Iterable[int], topic: Topic, session: Session
) -> _Topic:
    broker = session.node.broker
    partitions: list[_Partition] = []
    for number in numbers:
        if not 0 <= number < len(topic.partition_ids) or not broker.owns(topic, number):
            continue
        if len(partitions) % _PARTITIONS_PER_TURN == _PARTITIONS_PER_TURN - 1:
            await asyncio.sleep(0)
        partitions.append(
            _Partition(
                partition_index=number,
                partition_size=broker.stored_bytes(topic.partition_ids[number]),
                offset_lag=0,
                is_future_key=False,
            )
        )
    return _Topic(name=name, partitions=partitions)


def _volume(data_dir: Path) -> tuple[int, int]:
    """Return total and usable bytes of the directory's volume; -1 if they are unknown."""
    try:
        usage = shutil.disk_usage(data_dir)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return usage.total, usage.free
