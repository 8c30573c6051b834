"""Retained messages for new subscriptions, sent a page at a time."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from adapters.mqtt.delivery.at_most_once import send_part
from adapters.mqtt.delivery.exact_denials import ExactDenials
from adapters.mqtt.ports import SessionPort
from adapters.mqtt.retained.delivery import send_retained_part, wants_runs
from adapters.mqtt.retained.store import Retained, RetainedStore, RetainedStretch
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.wire import PublishRun

PAGES_PER_TURN: Final = 2
PAGE_MAX: Final = 512
PAGE_BYTES_MAX: Final = 65_536


class RetainedScans:
    """Sends retained messages to sessions for as long as their clients keep up.

    ``sys_values`` gives the present ``$SYS`` values that a filter matches.
    """

    def __init__(self, retained: RetainedStore) -> None:
        self.sys_values: Callable[[str], Sequence[tuple[bytes, bytes]]] | None = None
        self.exact_denials: ExactDenials | None = None
        self._retained = retained
        self._scanning: set[SessionPort] = set()  # they go on in the loop's next turn

    def send_sys(self, session: "SessionPort", subscription: Subscription) -> None:
        """Send the present ``$SYS`` values, which are retained in memory only, at QoS 0."""
        if self.sys_values is None:
            return
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        denials = self.exact_denials
        for topic, payload in self.sys_values(subscription.topic_filter):
            if denials is not None and denials.leaves_out(session, topic.decode()):
                continue
            run = PublishRun(topic, [payload], retain=True)
            send_part(session, run, 0, 1, retain=True, identifiers=identifiers)

    def send(self, session: "SessionPort") -> None:
        """Send the next pages to a session's new subscriptions, once in a turn of the loop.

        A read may bring thousands of acknowledgements, and each calls this. Journaled messages
        wait for the end of the turn, and only this limit bounds them until then.
        """
        if session in self._scanning:
            return
        for _ in range(PAGES_PER_TURN):
            if not (session.retained_scans and session.is_ready):
                return
            self._go_on_next_turn(session)
            scans = session.retained_scans
            name, (subscription, after) = next(iter(scans.items()))
            parts, following = self._retained.match(
                subscription.topic_filter,
                after=after,
                count_max=min(session.outbox.room, PAGE_MAX),
                bytes_max=PAGE_BYTES_MAX,
                as_runs=wants_runs(session, subscription),
            )
            if following is None:
                del scans[name]
            else:
                scans[name] = subscription, following
            if self.exact_denials is not None and not self.exact_denials.is_empty:
                parts = _without_denied(parts, session, self.exact_denials)
            for part in parts:
                send_retained_part(session, subscription, part)

    def _go_on_next_turn(self, session: "SessionPort") -> None:
        if session not in self._scanning:
            self._scanning.add(session)
            asyncio.get_running_loop().call_soon(self._go_on, session)

    def _go_on(self, session: "SessionPort") -> None:
        self._scanning.discard(session)
        session.go_on()


def _without_denied(
    parts: Sequence[Retained], session: "SessionPort", denials: ExactDenials
) -> list[Retained]:
    """Leave out the messages whose topics the session may not read."""
    found: list[Retained] = []
    for part in parts:
        if not isinstance(part, RetainedStretch):
            if not denials.leaves_out(session, part.topic.decode()):
                found.append(part)
            continue
        kept = [
            (topic, payload)
            for topic, payload in zip(part.topics, part.payloads, strict=True)
            if not denials.leaves_out(session, topic.decode())
        ]
        if kept:
            topics, payloads = map(list, zip(*kept, strict=True))
            found.append(RetainedStretch(topics, payloads, part.qos))
    return found
