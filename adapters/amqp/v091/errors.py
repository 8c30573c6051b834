"""Reply codes of AMQP 0-9-1 (section 1.1, RabbitMQ's included) and the faults that have them."""

from enum import IntEnum
from typing import Final

from gateway import errors

TEXT_BYTES_MAX: Final = 255


class ReplyCode(IntEnum):
    """Reply code; the name is what ``reply-text`` begins with."""

    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


_SOFT: Final = frozenset({311, 312, 313, 403, 404, 405, 406})


class AmqpFault(errors.PeerError):
    """Fault that closes the channel, or the connection: ``is_hard``.

    ``explanation`` is the part of ``reply-text`` behind the code's name.
    """

    def __init__(
        self, code: ReplyCode, explanation: str, *, is_hard: bool | None = None
    ) -> None:
        super().__init__(explanation)
        self.code = code
        self.explanation = explanation
        self.index = (0, 0)  # class and method id of what was at fault, once that is known
        self.is_hard = code not in _SOFT if is_hard is None else is_hard

    @property
    def reply_text(self) -> str:
        """Text of the close method, cut to what a short string holds."""
        data = f"{self.code.name} - {self.explanation}".encode()[:TEXT_BYTES_MAX]
        return data.decode(errors="ignore")


class FrameFault(AmqpFault):
    """Bytes that are no frame, or contradict themselves: 501."""

    def __init__(self, explanation: str) -> None:
        super().__init__(ReplyCode.FRAME_ERROR, explanation)


_CODES: Final[tuple[tuple[type[errors.GatewayError], ReplyCode], ...]] = (
    (errors.TopicNotFound, ReplyCode.NOT_FOUND),
    (errors.TopicExists, ReplyCode.PRECONDITION_FAILED),
    (errors.QueueFull, ReplyCode.PRECONDITION_FAILED),
    (errors.PolicyViolation, ReplyCode.ACCESS_REFUSED),
    (errors.MessageTooLarge, ReplyCode.PRECONDITION_FAILED),
    (errors.NotLeader, ReplyCode.CONNECTION_FORCED),  # clients connect again upon it
    (errors.RequestError, ReplyCode.PRECONDITION_FAILED),
    (errors.Overloaded, ReplyCode.RESOURCE_ERROR),
    (errors.ShuttingDown, ReplyCode.CONNECTION_FORCED),
    (errors.StorageUnavailable, ReplyCode.INTERNAL_ERROR),
)


def to_fault(error: errors.GatewayError) -> AmqpFault:
    """Return an error of the gateway as the fault that a client is told."""
    if isinstance(error, AmqpFault):
        return error
    for kind, code in _CODES:
        if isinstance(error, kind):
            text = getattr(error, "public_text", None) or str(error)
            return AmqpFault(code, text)
    return AmqpFault(ReplyCode.INTERNAL_ERROR, "the gateway's log says why")
