"""Read access of subscriptions, checked again when rules change.

A subscription that rules deny stays in its session, but is out of force: it gets no messages
until the rules allow it again. MQTT has no packet that would inform the client. Access is checked
when a client connects and, for all connected clients, when rules change; never per message.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from adapters.mqtt.delivery.exact_denials import ExactDenials
from adapters.mqtt.ports import ContextPort, GroupPort, SessionPort
from adapters.mqtt.sessions.ended_registry import EndedRegistry

CHECKED_PER_TURN: Final = 200  # subscriptions, before the loop serves others

NOTHING: Final[frozenset[str]] = frozenset()


class AccessServices(ContextPort, Protocol):
    """Services that are used here; see ``session_context``."""

    endings: EndedRegistry

    def join(self, group: GroupPort, session: SessionPort) -> None:
        """Make a connected member take part in its group."""
        ...

    def part(self, group: GroupPort, session: SessionPort) -> None:
        """Remove a member from those that take part."""
        ...

    def catch_up_anew(self, session: SessionPort) -> None:
        """Look up again what was found for a session that is behind."""
        ...


def forbidden_to(session: "SessionPort") -> frozenset[str]:
    """Return the names of an attached session's subscriptions that rules deny."""
    assert session.connection is not None
    access = session.connection.access
    assert access is not None
    found = [
        name
        for name, subscription in session.subscriptions.items()
        if not access.may_subscribe(
            subscription.topic_filter, is_shared=subscription.group is not None
        )
    ]
    return frozenset(found) if found else NOTHING


def put_in_force(context: AccessServices, session: "SessionPort", name: str) -> None:
    """Put a subscription of an attached session in force: it gets new messages."""
    subscription = session.subscriptions[name]
    if subscription.group is None:
        context.distributor.trie.add(subscription, session)
    else:
        context.join(session.groups[name], session)


class ReadAccess:
    """Checks the subscriptions of all connected sessions. Loop only."""

    def __init__(
        self,
        context: AccessServices,
        sessions: Iterable["SessionPort"],
        exact_denials: ExactDenials,
    ) -> None:
        self._exact_denials = exact_denials
        self._context = context
        self._sessions = sessions

    async def rules_changed(self) -> None:
        """Check all sessions, a bounded number of subscriptions in each turn of the loop.

        A client that connects meanwhile is checked by the rules of that moment.
        """
        self._exact_denials.renew()
        checked = 0
        for session in tuple(self._sessions):
            if not session.is_attached or session.connection is None:
                continue
            self.check_session(session)
            checked += len(session.subscriptions) + len(session.ended or ())
            if checked >= CHECKED_PER_TURN:
                checked = 0
                await asyncio.sleep(0)

    def check_session(self, session: "SessionPort") -> None:
        """Put denied subscriptions of a session out of force, and allowed ones in force."""
        context = self._context
        is_less = context.endings.drop_forbidden(session)
        before, session.forbidden = session.forbidden, forbidden_to(session)
        for name in session.forbidden - before:
            subscription = session.subscriptions[name]
            if subscription.group is None:
                context.distributor.trie.remove(subscription.topic_filter, session)
            else:
                context.part(session.groups[name], session)
        session.forget_retained(session.forbidden)
        if is_less or session.forbidden - before:
            context.catch_up_anew(session)  # receivers may have been found between two slices
        for name in before - session.forbidden:
            put_in_force(context, session, name)
