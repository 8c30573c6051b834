"""Parameters and bodies of REST calls, within bounds, and shared parts of answers."""

import base64
from contextlib import AbstractContextManager
from typing import Final, TypeVar
from urllib.parse import unquote

from pydantic import ValidationError
from starlette.requests import Request

from gateway.admin.roles import Caller, Role
from gateway.auth.audit import topic_text
from gateway.auth.ports import Operation, Principal, ResourceType
from gateway.config.base import FrozenConfig
from gateway.errors import InvalidRequest, RequestError, Unauthorized
from gateway.kernel import Kernel
from gateway.model import DEFAULT_NAMESPACE, TopicName, check_topic_name

BODY_BYTES_MAX: Final = 1_048_576
DOCUMENT_BYTES_MAX: Final = 33_554_432  # of POST /v1/deployment
ADMIN: Final = "admin"  # in audit lines: the name, and the protocol, of who has the token
CALLER: Final = "headgate.caller"
"""Key of a request's scope with the ``Caller`` of a session; missing with the token."""
Body = TypeVar("Body", bound=FrozenConfig)


class NotFound(RequestError):
    """Nothing of that name is there. A subclass's name says what; its status is 404."""


def changes(
    kernel: Kernel, request: Request, action: str, name: str
) -> AbstractContextManager[None]:
    """Write an audit line about a change within the context.

    The user is that of the session, ``admin`` with the token.
    """
    return kernel.audit.change(_asking(request), action, name)


def check_may(kernel: Kernel, request: Request, operation: Operation, topic: TopicName) -> None:
    """Check that a session's user may read or write a topic's messages. Error: ``Unauthorized``.

    The token, and an administrator, may.
    """
    caller: Caller | None = request.scope.get(CALLER)
    if caller is None or caller.role is Role.ADMIN:
        return
    name = topic_text(topic)
    if not kernel.authorizer.allows(caller.principal, operation, ResourceType.TOPIC, name):
        raise Unauthorized(f"{caller.principal.name} may not {operation.value} topic {name}")


def check_admin(request: Request) -> None:
    """Check that a session is an administrator's. Error: ``Unauthorized``. The token's is."""
    caller: Caller | None = request.scope.get(CALLER)
    if caller is not None and caller.role < Role.ADMIN:
        raise Unauthorized(f"this needs the role admin; yours is {caller.role.title}")


def _asking(request: Request) -> Principal:
    caller: Caller | None = request.scope.get(CALLER)
    if caller is not None:
        return caller.principal
    return Principal(ADMIN, ADMIN, request.client.host if request.client else "")


def path_text(request: Request, name: str) -> str:
    """Return a decoded part of the path."""
    return unquote(request.path_params[name])


def namespace_of(request: Request) -> str:
    """Return the namespace that the query names, or the default one."""
    return request.query_params.get("namespace", DEFAULT_NAMESPACE)


def topic_name(request: Request) -> TopicName:
    """Return the topic that the path names. Errors: ``InvalidTopicName``."""
    return TopicName(namespace_of(request), check_topic_name(path_text(request, "topic")))


async def read_body(
    request: Request, model: type[Body], *, bytes_max: int = BODY_BYTES_MAX
) -> Body:
    """Return the JSON body, checked. Errors: ``InvalidRequest``."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > bytes_max:
            msg = f"the body is larger than {bytes_max} bytes"
            raise InvalidRequest(msg)
    try:
        return model.model_validate_json(bytes(data) or b"{}")
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        path = ".".join(map(str, detail["loc"])) or "body"
        msg = f"{path}: {detail['msg']}"
        raise InvalidRequest(msg) from error


def bytes_as_text(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as text, or under ``<name>_base64`` when they are not UTF-8."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        assert data is not None
        return {f"{name}_base64": base64.b64encode(data).decode()}
