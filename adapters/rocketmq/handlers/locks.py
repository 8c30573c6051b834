"""Locks of queues for orderly consumption: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

A client that consumes in order takes a lock of each of its queues for its group, and renews it in
time. Locks are in memory only, and end with their time, as on a server.
"""

from collections.abc import Hashable
from typing import Any, Final

import orjson

from adapters.rocketmq.names import check_group
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.wire import ResponseCode
from adapters.rocketmq.request import Request
from gateway.auth.ports import Operation, ResourceType

LOCK_MS: Final = 60_000
"""Time of a lock that is not renewed: ``rocketmq.broker.rebalance.lockMaxLiveTime``."""
QUEUES_MAX: Final = 10_000
"""Queues of one request."""
_LOCK: Final = "rocketmq.queue"


def lock(request: Request) -> None:
    """Take or renew locks; answer with the queues whose locks the client has then."""
    client_id, queues = _decode(request)
    leaser = request.node.kernel.leaser
    locked = [
        queue
        for resource, queue in queues
        if leaser.take(resource, _holder(client_id), span_ms=LOCK_MS) is not None
    ]
    request.reply(body=orjson.dumps({"lockOKMQSet": locked}))


def unlock(request: Request) -> None:
    """Give locks back; one that the client has not is no error."""
    client_id, queues = _decode(request)
    for resource, _ in queues:
        request.node.kernel.leaser.release(resource, _holder(client_id))
    request.reply()


def _holder(client_id: str) -> Hashable:
    return _LOCK, client_id


def _decode(request: Request) -> tuple[str, list[tuple[Hashable, dict[str, Any]]]]:
    """Return the client's id, and of each queue the resource and how the client names it."""
    try:
        data = orjson.loads(request.command.body)
        group, client_id = check_group(data["consumerGroup"]), data["clientId"]
        queues = [_queue(group, one) for one in data.get("mqSet") or ()]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise _invalid(f"the body cannot be read: {error!r}") from None
    if not isinstance(client_id, str) or len(queues) > QUEUES_MAX:
        raise _invalid(f"clientId is no text, or mqSet has more than {QUEUES_MAX}")
    request.authorize(Operation.READ, ResourceType.GROUP, group)
    return client_id, queues


def _queue(group: str, queue: dict[str, Any]) -> tuple[Hashable, dict[str, Any]]:
    topic, broker, number = queue["topic"], queue["brokerName"], queue["queueId"]
    if not isinstance(topic, str) or not isinstance(broker, str) or type(number) is not int:
        raise _invalid("a queue has no topic, brokerName or queueId")
    named = {"brokerName": broker, "queueId": number, "topic": topic}
    return (_LOCK, group, topic, number), named


def _invalid(remark: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, remark)
