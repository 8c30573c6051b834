"""Registration of foreign brokers: REGISTER_BROKER (103), UNREGISTER_BROKER (104).

A broker sends its topics with each registration. The body's checksum is CRC-32 as messages have it,
0 for none.
"""

import zlib
from typing import Final

from adapters.rocketmq.nameserver.kv_configs import KV_KIND, ORDER_NAMESPACE
from adapters.rocketmq.nameserver.registry import (
    NAME_CHARS_MAX,
    RegisteredBroker,
    decode_topics,
)
from adapters.rocketmq.nameserver.routes import MASTER_ID, QueueEntry, encode_table
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.fields import flag_of, number_of, text_of
from adapters.rocketmq.remoting.wire import ResponseCode
from adapters.rocketmq.request import Request
from gateway.auth.ports import CLUSTER, Operation, ResourceType
from gateway.config.base import parse_address

_CRC_MASK: Final = 0x7FFFFFFF
_BROKER_IDS: Final = range(1 << 31)


def register(request: Request) -> None:
    """Add or renew a broker; answer with the address of its master and the ordered topics."""
    request.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER)
    fields, node = request.fields, request.node
    broker = RegisteredBroker(
        _name(text_of(fields, "brokerName")),
        _name(text_of(fields, "clusterName")),
        number_of(fields, "brokerId"),
        _address(text_of(fields, "brokerAddr")),
        request.client,
    )
    if broker.broker_id not in _BROKER_IDS or broker.name == node.config.broker_name:
        raise _refused(f"broker {broker.name} with id {broker.broker_id} cannot register here")
    if flag_of(fields, "compressed"):
        raise _refused("a compressed registration is not served: set compressedRegister=false")
    if broker.broker_id == MASTER_ID:
        broker.topics = _topics(request, broker.name)
    node.brokers.register(broker)
    answer = {}
    master = node.brokers.master_address(broker.name)
    if broker.broker_id != MASTER_ID and master is not None:
        answer["masterAddr"] = answer["haServerAddr"] = master
    ordered = node.documents.of_kind(KV_KIND)
    table = {
        key.name: text for key, text in ordered.items() if key.namespace == ORDER_NAMESPACE
    }
    request.reply(answer, encode_table(table))


def _topics(request: Request, broker_name: str) -> dict[str, QueueEntry]:
    body = request.command.body
    checksum = number_of(request.fields, "bodyCrc32", 0)
    if checksum and checksum != zlib.crc32(body) & _CRC_MASK:
        raise _refused("crc32 not match")
    topics_max = request.node.config.nameserver.broker_topics_max
    return decode_topics(body, broker_name, topics_max=topics_max) if body else {}


def unregister(request: Request) -> None:
    """Forget a broker, if it is there."""
    request.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER)
    name, broker_id = (
        text_of(request.fields, "brokerName"),
        number_of(request.fields, "brokerId"),
    )
    request.node.brokers.unregister(name, broker_id)
    request.reply()


def _name(text: str) -> str:
    if not 0 < len(text) <= NAME_CHARS_MAX:
        raise _refused(f"a name has 1 to {NAME_CHARS_MAX} characters")
    return text


def _address(text: str) -> str:
    try:
        parse_address(text)
    except ValueError as error:
        raise _refused(f"brokerAddr: {error}") from None
    return text


def _refused(remark: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, remark)
