"""One request being served, between the protocol that it came by and the handler of its action.

A handler sees the JSON protocol's shapes, whichever protocol it was; blobs are base64 text in
both. It returns the result, or keeps the call and says ``reply`` or ``fail`` later, once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from adapters.sqs.errors import SqsError
from gateway.auth.ports import Principal

Params = dict[str, Any]
Result = dict[str, Any]


class Identity(NamedTuple):
    """Who asks, and in which account and region. ``access_key_id`` is empty for anonymous.

    ``service`` is what the request was signed for; empty without a signature.
    """

    principal: Principal
    account: str
    region: str
    access_key_id: str = ""
    service: str = ""


class Answer(Protocol):
    """How a call is answered: the connection that it came by."""

    is_json: bool
    """The JSON protocol is spoken."""

    def send_json(self, body: bytes) -> None:
        """Send the body of a result as it is, where JSON is spoken."""
        ...

    def __call__(self, call: "Call", result: Result | None, error: SqsError | None) -> None:
        """Send a result or an error, in the order in which requests came."""
        ...


class Call:
    """A request whose parameters have the types and the required members of their action.

    ``base_url`` is what queue URLs begin with, ``on_gone`` is called when the peer has gone
    before the answer: a receive that waits then waits no more. ``trace`` is the X-Ray trace header
    of the request.
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

    def __init__(  # noqa: PLR0913, PLR0917 - what a request is made of; called in one place
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
        """Answer with a result. After the peer has gone it does nothing."""
        assert not self.is_answered
        self.is_answered = True
        self.on_gone = None
        self._answer(self, result, None)

    @property
    def is_json(self) -> bool:
        """Whether ``reply_json`` may be used."""
        return self._answer.is_json

    def reply_json(self, body: bytes) -> None:
        """Answer with a result that is encoded already."""
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
