"""Publishing: SENDs that differ in their bodies only are one run, and one append.

A *plan* is all that messages with the same headers share: exchange, routing key, headers of the
records. Plans of one connection are kept by those headers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.errors import InvalidRequest
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.publisher import Message, Publication
from gateway.kernel import Kernel
from gateway.storage import OnDone
from headgate_stomp.destinations import Destination
from headgate_stomp.frames import Frame
from headgate_stomp.mapping import AMQP_MESSAGE_ID, KEY, to_headers

_EACH: Final = frozenset({"content-length", "receipt", "transaction"})
"""Headers in which messages of one run may differ."""
_OVERHEAD_BYTES: Final = 64  # of memory, for each message or settlement
_PLANS_MAX: Final = 64
_PLAN_BYTES_MAX: Final = 1_024  # larger ones are made anew each time
_KEY_BYTES_MAX: Final = 32_767

Shared = tuple[tuple[str, str], ...]
"""Headers of a run."""


def shared_headers(frame: Frame) -> Shared:
    """Return the headers of a SEND that others of its run have, too."""
    return tuple(one for one in frame.headers.items() if one[0] not in _EACH)


@dataclass(frozen=True, slots=True)
class Plan:
    """Parts that messages of the same headers share. ``has_time``: not to be kept for later."""

    exchange: ExchangeName
    routed: Message
    headers: list[tuple[str, bytes | None]]
    key: bytes | None
    has_time: bool

    def publication(self, bodies: Sequence[bytes]) -> Publication:
        """Return messages to be published."""
        return Publication(self.routed, bodies, self.headers, self.key)


class Plans:
    """Plans of one connection."""

    def __init__(self, kernel: Kernel, reserved: tuple[str, ...]) -> None:
        self._kernel = kernel
        self._reserved = reserved
        self._plans: dict[Shared, Plan] = {}

    def get(self, shared: Shared, destination: Destination) -> Plan:
        """Return the plan of a run. Error: ``InvalidRequest`` for a bad header."""
        plan = self._plans.get(shared)
        if plan is None:
            plan = self._new(dict(shared), destination)
            size_bytes = sum(len(name) + len(value) for name, value in shared)
            if not plan.has_time and size_bytes <= _PLAN_BYTES_MAX:
                if len(self._plans) >= _PLANS_MAX:
                    self._plans.pop(next(iter(self._plans)))
                self._plans[shared] = plan
        return plan

    def _new(self, headers: dict[str, str], destination: Destination) -> Plan:
        key = headers.get(KEY)
        if key is not None and len(key.encode()) > _KEY_BYTES_MAX:
            msg = f"the header key is longer than {_KEY_BYTES_MAX} bytes"
            raise InvalidRequest(msg)
        now_unix_ms = self._kernel.clock.unix_ms()
        properties = {
            "message_id": headers.get(AMQP_MESSAGE_ID),
            "correlation_id": headers.get("correlation-id"),
            "timestamp": headers.get("timestamp"),
        }
        texts = {name: text for name, text in properties.items() if text is not None}
        return Plan(
            destination.exchange,
            Message((destination.routing_key,), headers, texts),
            to_headers(headers.items(), now_unix_ms=now_unix_ms, reserved=self._reserved),
            None if key is None else key.encode(),
            "expiration" in headers,
        )


class Run:
    """Messages of one plan, received in one read, and the receipts that are asked for."""

    __slots__ = ("bodies", "plan", "receipts", "shared")

    def __init__(self, shared: Shared, plan: Plan) -> None:
        self.shared = shared
        self.plan = plan
        self.bodies: list[bytes] = []
        self.receipts: list[str] = []

    def add(self, frame: Frame) -> None:
        """Add a message."""
        self.bodies.append(frame.body)
        if (receipt := frame.headers.get("receipt")) is not None:
            self.receipts.append(receipt)

    def publish(self, kernel: Kernel, on_done: OnDone) -> None:
        """Append the messages. Errors: those of ``Publisher.publish``."""
        kernel.publisher.publish(
            self.plan.exchange, self.plan.publication(self.bodies), on_done
        )


def size_of(frame: Frame) -> int:
    """Return the memory of a message in bytes, at most."""
    headers = sum(len(name) + len(value) for name, value in frame.headers.items())
    return len(frame.body) + headers + _OVERHEAD_BYTES
