"""Sends: checks, runs of records, and the response when they are durable.

One append has all messages of a batch. Checks and their codes are those of
``SendMessageProcessor`` and of its ``msgCheck``.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import uuid4

from adapters.rocketmq.mapping import (
    REGION,
    UNIQUE_KEY,
    Origin,
    headers_of,
    key_of,
    physical_offset,
)
from adapters.rocketmq.names import check_topic
from adapters.rocketmq.node import RocketMqNode
from adapters.rocketmq.producing.bodies import plain_body
from adapters.rocketmq.producing.delay_levels import deliver_at_unix_ms
from adapters.rocketmq.producing.send_header import SendHeader
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.message_codec import (
    PROPERTIES_BYTES_MAX,
    BatchMember,
    decode_batch,
    decode_properties,
    encode_host,
    message_id,
)
from adapters.rocketmq.remoting.wire import ResponseCode
from adapters.rocketmq.request import Request
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import StorageUnavailable, TopicNotFound
from gateway.partition import Partition
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun
from gateway.topics.manager import Topic

_TRANSACTION_BITS: Final = 0xC  # of the system flag: prepared, commit, rollback
_TRANSACTION: Final = "TRAN_MSG"


def send(request: Request, header: SendHeader) -> None:
    """Check and append; the response comes later. Errors: ``GatewayError``."""
    check_topic(header.topic)
    request.authorize(Operation.WRITE, ResourceType.TOPIC, header.topic)
    members = _members(request, header)
    topic = request.node.find_topic(header.topic)
    if topic is None:
        request.start(_create_and_append(request, header, members))
    else:
        _append(request, header, members, topic)


async def _create_and_append(
    request: Request, header: SendHeader, members: Sequence[BatchMember]
) -> None:
    node = request.node
    request.authorize(Operation.CREATE, ResourceType.TOPIC, header.topic)
    queues = min(max(header.default_queues, 1), node.config.default_topic_queues)
    topic = await node.create_topic(header.topic, queues)
    if topic.is_internal:
        raise TopicNotFound(f"topic[{header.topic}] not exist")
    _append(request, header, members, topic)


def _members(request: Request, header: SendHeader) -> list[BatchMember]:
    """Return the messages of a send, one unless it is a batch."""
    config = request.node.config
    if len(header.properties.encode()) > PROPERTIES_BYTES_MAX:
        size = len(header.properties)
        raise _illegal(f"the message properties size {size} over {PROPERTIES_BYTES_MAX}")
    body = bytes(request.command.body)
    if header.is_batch:
        if len(body) > config.message_bytes_max:
            raise _illegal(f"the batch size over max value, MAX: {config.message_bytes_max}")
        members = decode_batch(body)
    else:
        plain = plain_body(body, header.system_flag, bytes_max=config.message_bytes_max)
        members = [BatchMember(header.flag, plain, decode_properties(header.properties))]
    is_half = any(one.properties.get(_TRANSACTION) == "true" for one in members)
    if is_half or header.system_flag & _TRANSACTION_BITS:
        remark = f"the broker[{config.broker_name}] sending transaction message is forbidden"
        raise Refused(ResponseCode.NO_PERMISSION, remark)
    return members


def _append(
    request: Request, header: SendHeader, members: Sequence[BatchMember], topic: Topic
) -> None:
    node = request.node
    partition = node.kernel.broker.partition(topic, _queue_of(node, header, topic))
    runs = [_run(request, header, one) for one in members]
    done = partial(_on_appended, request, partition, members, runs)
    node.coalescer.add_many([(partition, run) for run in runs], done)


def _queue_of(node: RocketMqNode, header: SendHeader, topic: Topic) -> int:
    if header.queue_id < 0:
        return node.next_queue(topic)
    if header.queue_id >= len(topic.partition_ids):
        remark = f"request queueId[{header.queue_id}] is illegal, topic[{header.topic}]"
        raise Refused(ResponseCode.INVALID_PARAMETER, remark)
    return header.queue_id


def _run(request: Request, header: SendHeader, member: BatchMember) -> RecordRun:
    node = request.node
    now_unix_ms = node.kernel.clock.unix_ms()
    properties = member.properties
    if UNIQUE_KEY not in properties:
        properties = {**properties, UNIQUE_KEY: uuid4().hex.upper()}
    due_unix_ms = deliver_at_unix_ms(properties, now_unix_ms)
    if due_unix_ms is not None and header.is_batch:
        raise _illegal("a message of a batch has no delay")
    origin = Origin(
        member.flag, header.born_unix_ms, request.client.peer_address, header.reconsume_times
    )
    prefixes = node.kernel.contributions.header_prefixes
    headers = encode_headers(headers_of(properties, origin, prefixes))
    run = RecordRun(key_of(properties), (member.body,), headers, now_unix_ms)
    run.deliver_at_unix_ms = due_unix_ms
    return run


def _on_appended(
    request: Request,
    partition: Partition,
    members: Sequence[BatchMember],
    runs: Sequence[RecordRun],
    error: StorageUnavailable | None,
) -> None:
    if error is not None:
        request.fail(error)
        return
    store_host = encode_host(request.client.advertised)
    ids = [
        message_id(store_host, physical_offset(partition.partition_id, max(run.base_offset, 0)))
        for run in runs
    ]
    fields = {
        "msgId": ",".join(ids),
        "queueId": str(partition.number),
        "queueOffset": str(max(runs[0].base_offset, 0)),
        "MSG_REGION": REGION,
        "TRACE_ON": "true",
    }
    unique_key = members[0].properties.get(UNIQUE_KEY)
    if unique_key is not None and len(members) == 1:
        fields["transactionId"] = unique_key
    request.reply(fields)


def _illegal(remark: str) -> Refused:
    return Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
