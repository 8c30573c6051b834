"""One call of an action, between the wire protocol and the handler.

A handler gets the JSON protocol's shapes from both protocols; blobs are base64 text. It returns the
result, or keeps the call and calls ``reply`` or ``fail`` later, once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from adapters.sqs.errors import SqsError
from gateway.auth.ports import Principal

Params = dict[str, Any]
Result = dict[str, Any]


class Identity(NamedTuple):
    """The caller, with account and region. ``access_key_id`` is empty for anonymous.

    ``service`` is the service that the request was signed for; empty without a signature.
    """

    principal: Principal
    account: str
    region: str
    access_key_id: str = ""
    service: str = ""


class Answer(Protocol):
    """The way back to the client of a call."""

    is_json: bool
    """Whether the client uses the JSON protocol."""

    def send_json(self, body: bytes) -> None:
        """Send the encoded body of a result. Only if ``is_json``."""
        ...

    def __call__(self, call: "Call", result: Result | None, error: SqsError | None) -> None:
        """Send a result or an error, in the order of the requests."""
        ...


class Call:
    """A request with checked parameters: types and required members are those of its action.

    ``base_url`` is the beginning of queue URLs. ``on_gone`` is called when the client disconnects
    before the answer, for example to end a waiting receive. ``trace`` is the X-Ray trace header of
    the request.
    """

    __slots__ = (
        "_answer",
        "action",
        "base_url",
        "identity",
        "is_answered",
        "on_gone",
        "params",
        "request_id",
        "trace",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a request; called in one place
        self,
        action: str,
        params: Params,
        identity: Identity,
        base_url: str,
        request_id: str,
        answer: Answer,
        trace: bytes | None = None,
    ) -> None:
        self.action = action
        self.params = params
        self.identity = identity
        self.base_url = base_url
        self.request_id = request_id
        self.trace = trace
        self.is_answered = False
        self.on_gone: Callable[[], None] | None = None
        self._answer = answer

    def reply(self, result: Result) -> None:
        """Answer with a result; without effect after the client has disconnected."""
        assert not self.is_answered
        self.is_answered = True
        self.on_gone = None
        self._answer(self, result, None)

    @property
    def is_json(self) -> bool:
        """Whether ``reply_json`` may be used."""
        return self._answer.is_json

    def reply_json(self, body: bytes) -> None:
        """Answer with an encoded result."""
        assert not self.is_answered
        self.is_answered = True
        self.on_gone = None
        self._answer.send_json(body)

    def fail(self, error: SqsError) -> None:
        """Answer with an error."""
        assert not self.is_answered
        self.is_answered = True
        self.on_gone = None
        self._answer(self, None, error)
