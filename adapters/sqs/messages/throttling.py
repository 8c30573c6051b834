"""Client quotas of SQS: a client above its byte rate gets RequestThrottled, which SDKs retry.

A request to send is charged its body, a receive what it is answered with. A request that comes
while the client is above its rate is refused without an effect, and not charged.
"""

from typing import Final

from adapters.sqs.call import Answer, Call, Identity, Result
from adapters.sqs.errors import REQUEST_THROTTLED, SqsError
from gateway.quotas.manager import Quotas
from gateway.quotas.meters import Meter

_SENDS: Final = frozenset({"SendMessage", "SendMessageBatch"})
_RECEIVES: Final = frozenset({"ReceiveMessage"})


class MeteredAnswer:
    """Answer that charges the messages it returns to their receiver."""

    __slots__ = ("_answer", "_meter", "is_json")

    def __init__(self, answer: Answer, meter: Meter) -> None:
        self._answer = answer
        self._meter = meter
        self.is_json = answer.is_json

    def send_json(self, body: bytes) -> None:
        """See ``Answer``."""
        self._meter.charge(len(body))
        self._answer.send_json(body)

    def __call__(self, call: Call, result: Result | None, error: SqsError | None) -> None:
        """See ``Answer``."""
        if result is not None:
            messages = result.get("Messages", ())
            self._meter.charge(sum(len(message["Body"]) for message in messages))
        self._answer(call, result, error)


def metered(
    quotas: Quotas, identity: Identity, action: str, size_bytes: int, answer: Answer
) -> Answer:
    """Charge a request of ``size_bytes``, and return the answer to give to it.

    The client id is the access key's id. Error: ``SqsError`` (``REQUEST_THROTTLED``).
    """
    limits = quotas.of(identity.principal.name, identity.access_key_id)
    if action in _SENDS:
        if limits.produced is not None:
            _check(limits.produced)
            limits.produced.charge(size_bytes)
    elif action in _RECEIVES and limits.consumed is not None:
        _check(limits.consumed)
        return MeteredAnswer(answer, limits.consumed)
    return answer


def _check(meter: Meter) -> None:
    if meter.check():
        raise SqsError(REQUEST_THROTTLED, "The request was denied due to request throttling.")
