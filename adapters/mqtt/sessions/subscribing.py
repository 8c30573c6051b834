"""SUBSCRIBE and UNSUBSCRIBE of a session: subscriptions that begin and end, and their storage."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from adapters.mqtt.ports import ContextPort, SessionPort
from adapters.mqtt.sessions.ended_registry import EndedRegistry
from adapters.mqtt.sessions.store import SessionStore
from adapters.mqtt.sessions.subscription_records import decode_ended, decode_subscription
from adapters.mqtt.subscriptions.ended import EndedSubscription
from adapters.mqtt.subscriptions.filters import (
    TOPIC_BYTES_MAX,
    filter_bytes,
    parse_subscription,
)
from adapters.mqtt.subscriptions.subscription import NO_STARTS, Subscription, written_filter
from gateway.errors import StorageUnavailable
from gateway.storage import OnDone


class SubscribingServices(ContextPort, Protocol):
    """Services that are used here; see ``session_context``."""

    endings: EndedRegistry
    subscription_count: int

    @property
    def store(self) -> SessionStore:
        """The stream that keeps sessions."""
        ...

    def add_subscription(
        self, session: SessionPort, name: str, subscription: Subscription
    ) -> None:
        """Add a subscription of a session."""
        ...

    def drop_subscription(self, session: SessionPort, name: str) -> None:
        """Remove a subscription of a session."""
        ...

    def forget_replaced(self, session: SessionPort, name: str) -> None:
        """Forget what a subscription was before."""
        ...

    def note_away(self, session: SessionPort) -> None:
        """Note where a session is in the partitions of other nodes."""
        ...

    def stop_catching_up(self, session: SessionPort) -> None:
        """Let a session be behind no more."""
        ...

    def restore_member(self, session: SessionPort, subscription: Subscription) -> None:
        """Take back a member of a shared subscription."""
        ...


class Subscribing:
    """Adds and removes the subscriptions of sessions."""

    def __init__(self, context: SubscribingServices) -> None:
        self._context = context

    def subscribe(
        self, session: SessionPort, subscriptions: Sequence[Subscription], on_done: OnDone
    ) -> None:
        """Add subscriptions; one with the filter of another takes its place.

        With its options too, it goes on from where the other began; else the other ends.
        """
        context = self._context
        if any(self._ends(session, one) for one in subscriptions):
            context.feeds.push_held()  # the old ones match what was acknowledged before
        read_log_before = session.reads_log
        live: Mapping[int, int] = NO_STARTS
        context.note_away(session)
        if session.is_kept or session.behind or session.slow_receivers:
            live = context.feeds.end_offsets()
        written = {}
        replaced: dict[str, Subscription | None] = {}
        ended: list[tuple[str, EndedSubscription[SessionPort]]] = []
        for subscription in subscriptions:
            name = written_filter(subscription)
            old = session.subscriptions.get(name)
            replaced.setdefault(name, old)  # a filter may be there twice
            subscription.starts = live
            if old is not None and (old.qos or session.slow_receivers):
                is_at_qos_0 = not (old.qos or subscription.qos)
                if old.group is not None or is_at_qos_0 or old.is_alike(subscription):
                    subscription.starts = old.starts
                else:
                    for slow_receiver in session.slow_receivers.values():
                        slow_receiver.replace(old, live)
                    if (rest := context.endings.end(session, old, live)) is not None:
                        ended.append((name, rest))
            written[name] = subscription
            context.add_subscription(session, name, subscription)
        if not read_log_before:
            context.stop_catching_up(session)
        if session.is_kept:
            done = partial(self._subscribed, session, written, replaced, ended, on_done)
            context.store.put_subscriptions(session, written, done)
        else:
            on_done(None)

    @staticmethod
    def _ends(session: SessionPort, subscription: Subscription) -> bool:
        """Say whether there is one of QoS 1 or 2 that ends when this one comes."""
        old = session.subscriptions.get(written_filter(subscription))
        return old is not None and old.qos > 0 and not old.is_alike(subscription)

    def _subscribed(  # noqa: PLR0917 - all that there was before
        self,
        session: SessionPort,
        written: Mapping[str, Subscription],
        replaced: Mapping[str, Subscription | None],
        ended: Sequence[tuple[str, EndedSubscription[SessionPort]]],
        on_done: OnDone,
        error: StorageUnavailable | None,
    ) -> None:
        """SUBACK says no when nothing was kept: then all is as it was before."""
        context = self._context
        for name, subscription in written.items() if error is not None else ():
            if session.subscriptions.get(name) is not subscription:
                continue
            old = replaced[name]
            if old is None:
                context.drop_subscription(session, name)
            else:  # in its place: a group without it would not be behind any more
                context.add_subscription(session, name, old)
                context.forget_replaced(session, name)
                for rest in (one for of, one in ended if of == name):
                    context.endings.remove(rest)
        on_done(error)

    def unsubscribe(
        self, session: SessionPort, filters: Sequence[str], on_done: OnDone
    ) -> list[bool]:
        """Remove subscriptions; messages that they matched before are still sent.

        A subscription that rules have suspended has no such messages.
        """
        context = self._context
        if session.reads_log:
            context.feeds.push_held()  # they match what was acknowledged before
        context.note_away(session)
        live = context.feeds.end_offsets() if session.behind else NO_STARTS
        existed = []
        for name in filters:
            old = session.subscriptions.get(name)
            existed.append(old is not None)
            if old is None:
                continue
            if name not in session.forbidden:
                context.endings.end(session, old, live)
            context.drop_subscription(session, name)
        context.store.remove_subscriptions(session, filters, on_done)
        return existed

    # --- restoring

    def restore(self, session: SessionPort, written: str, value: bytes) -> None:
        """Take back a subscription. Error: ``CorruptBatch``."""
        group_name, topic_filter = parse_subscription(written, levels_max=TOPIC_BYTES_MAX + 1)
        subscription = decode_subscription(topic_filter, group_name, value)
        session.subscriptions[written] = subscription
        session.filter_bytes += filter_bytes(written)
        self._context.subscription_count += 1
        if group_name is not None:
            self._context.restore_member(session, subscription)

    def restore_ended(self, session: SessionPort, number: int, value: bytes) -> None:
        """Take back one that has ended; they come in order. Error: ``CorruptBatch``."""
        self._context.endings.restore(decode_ended(session, number, value))
