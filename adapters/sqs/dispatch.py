"""Dispatch of requests: authentication, decoding, the handler of the action, the answer."""

from collections.abc import Coroutine
from time import perf_counter
from typing import Any, Final

from adapters.sqs import codec
from adapters.sqs.auth.audit import ACTIONS, AuditedAnswer
from adapters.sqs.auth.authentication import PROTOCOL, RequestAuthenticator
from adapters.sqs.auth.signature import wrong_service
from adapters.sqs.call import Answer, Call, Identity, Result
from adapters.sqs.errors import SqsError, to_sqs_error
from adapters.sqs.handlers import HANDLERS
from adapters.sqs.http import xml_codec
from adapters.sqs.http.reply import Reply
from adapters.sqs.messages.throttling import metered
from adapters.sqs.node import SqsNode
from adapters.sqs.wire import Request
from gateway.auth.login_throttle import Peer
from gateway.errors import GatewayError, as_value
from gateway.monitoring.request_latency import RequestLatency

METHODS: Final = "GET, HEAD, OPTIONS, POST"
_TEXT: Final = "text/plain; charset=utf-8"
_NO_OPERATION: Final = b"<UnknownOperationException/>\n"
_TRACE: Final = b"x-amzn-trace-id"
_GREETING: Final = b"Amazon SQS is spoken here.\n"


class Dispatcher:
    """Serves the requests of all connections. ``requests`` is their count by action."""

    def __init__(self, node: SqsNode, authenticator: RequestAuthenticator) -> None:
        self.requests = dict.fromkeys(HANDLERS, 0)
        self.latency = RequestLatency()
        self._node = node
        self._quotas = node.kernel.quotas
        self._authenticator = authenticator
        self._elements_max = node.config.request_elements_max

    def serve(
        self,
        request: Request,
        reply: Reply,
        *,
        peer_host: str,
        base_url: str,
        certificate_user: str | None = None,
    ) -> Coroutine[Any, Any, None] | None:
        """Answer a request through ``reply``, now or later.

        A returned coroutine has to be awaited before the next request of the connection is served;
        it gives the answer.
        """
        reply.is_json = codec.is_json(request)
        reply.wants_json = not reply.is_json and codec.accepts_json(request)
        try:
            if not reply.is_json and _answer_plain_http(request, reply):
                return None
            # First, so that an unauthenticated client costs only the parsing of its headers.
            identity = self._authenticate(request, peer_host, certificate_user)
            operation, fields = codec.find_operation(request, in_json=reply.is_json)
            if identity.service and identity.service != operation.service:
                raise wrong_service(operation.service)
            params = codec.decode_params(
                operation, request, fields, elements_max=self._elements_max
            )
            reply.operation = operation
            answer: Answer = reply
            action = ACTIONS.get(operation.name)
            if action is not None:
                answer = AuditedAnswer(reply, self._node.kernel.audit, action)
            trace = request.headers.get(_TRACE)
            if self._quotas.is_active:
                size_bytes = len(request.body)
                answer = metered(self._quotas, identity, operation.name, size_bytes, answer)
            call = Call(
                operation.name, params, identity, base_url, reply.request_id, answer, trace
            )
            reply.call = call
            self.requests[operation.name] += 1
            reply.latency, reply.begun_s = self.latency, perf_counter()
            result = HANDLERS[operation.name](call, self._node)
            if type(result) is dict:
                call.reply(result)
            elif result is not None:
                assert isinstance(result, Coroutine)
                return _answer_later(call, result)
        except SqsError as error:
            _refuse(reply, as_value(error))
        except GatewayError as error:
            _refuse(reply, to_sqs_error(error))
        return None

    def _authenticate(
        self, request: Request, peer_host: str, certificate_user: str | None
    ) -> Identity:
        try:
            return self._authenticator.authenticate(request, peer_host, certificate_user)
        except SqsError as error:
            user = self._authenticator.claimed_user(request)
            self._node.kernel.logins.refuse(Peer(PROTOCOL, peer_host), user, error)
            raise


async def _answer_later(call: Call, work: Coroutine[Any, Any, Result]) -> None:
    try:
        result = await work
    except SqsError as error:
        call.fail(as_value(error))
    except GatewayError as error:
        call.fail(to_sqs_error(error))
    else:
        call.reply(result)


def _refuse(reply: Reply, error: SqsError) -> None:
    """Answer with an error, through the call once there is one."""
    if reply.call is None:
        reply.fail(error)
    else:
        reply.call.fail(error)


def _answer_plain_http(request: Request, reply: Reply) -> bool:
    """Answer plain HTTP requests, such as health checks; return False for requests of SQS."""
    method = request.method
    if method == b"POST":
        return False
    if method == b"GET" and request.query:
        return False
    if method == b"GET" and request.path != b"/":
        reply.finish(404, xml_codec.CONTENT_TYPE, _NO_OPERATION)
        return True
    if method in {b"GET", b"HEAD"}:  # HEAD never has an effect
        reply.finish(200, _TEXT, _GREETING)
        return True
    allow = f"Allow: {METHODS}\r\n"
    if method == b"OPTIONS":
        reply.finish(200, _TEXT, b"", allow)
    else:
        reply.finish(405, _TEXT, b"Method not allowed.\n", allow)
    return True
