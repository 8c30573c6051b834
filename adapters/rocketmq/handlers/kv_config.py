"""Configs of the name server: PUT (100), GET (101), DELETE (102), and a namespace's (219).

Texts by namespace and key, which administrators set; they are stored, as documents of the node.
"""

from adapters.rocketmq.nameserver.kv_configs import KV_KIND
from adapters.rocketmq.nameserver.routes import encode_table
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.fields import text_of
from adapters.rocketmq.remoting.wire import ResponseCode
from adapters.rocketmq.request import Request
from gateway.auth.ports import CLUSTER, Operation, ResourceType


def put(request: Request) -> None:
    """Store a text; answered when it is stored."""
    namespace, key = _where(request, Operation.ALTER_CONFIGS)
    request.start(_put(request, namespace, key, text_of(request.fields, "value")))


async def _put(request: Request, namespace: str, key: str, value: str) -> None:
    await request.node.documents.put(KV_KIND, namespace, key, value)
    request.reply()


def get(request: Request) -> None:
    """Answer with a text."""
    namespace, key = _where(request, Operation.DESCRIBE_CONFIGS)
    value = request.node.documents.find(KV_KIND, namespace, key)
    if value is None:
        remark = f"No config item, Namespace: {namespace} Key: {key}"
        raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
    request.reply({"value": value})


def delete(request: Request) -> None:
    """Remove a text, if it is there."""
    request.start(_delete(request, *_where(request, Operation.ALTER_CONFIGS)))


async def _delete(request: Request, namespace: str, key: str) -> None:
    await request.node.documents.delete(KV_KIND, namespace, key)
    request.reply()


def list_namespace(request: Request) -> None:
    """Answer with all texts of a namespace."""
    request.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER)
    namespace = text_of(request.fields, "namespace")
    documents = request.node.documents.of_kind(KV_KIND)
    table = {key.name: value for key, value in documents.items() if key.namespace == namespace}
    if not table:
        remark = f"No config item, Namespace: {namespace}"
        raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
    request.reply(body=encode_table(table))


def _where(request: Request, operation: Operation) -> tuple[str, str]:
    request.authorize(operation, ResourceType.CLUSTER, CLUSTER)
    return text_of(request.fields, "namespace"), text_of(request.fields, "key")
