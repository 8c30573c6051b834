"""Filters of sessions whose clients come back, checked and put in force over turns of the loop.

A session may have 10,000 filters; to check them by the rules and add them takes 45 ms. It is done
some milliseconds at a time, before CONNACK. Until all are there they match nothing; then they are
in force at once. What comes meanwhile is read from the log, as what came before.
"""

from collections.abc import Callable, Coroutine, Iterator
from itertools import islice

from adapters.mqtt.ports import SessionConnection, SessionPort, Subscriber
from adapters.mqtt.reading.pacing import FILTERS_PER_STEP, Pace
from adapters.mqtt.sessions.disconnected_filters import DisconnectedFilters
from adapters.mqtt.sessions.ended_registry import EndedRegistry
from adapters.mqtt.subscriptions.trie import SubscriptionTrie


class ReturningFilters:
    """Prepares sessions with many filters."""

    def __init__(
        self,
        trie: SubscriptionTrie[Subscriber],
        disconnected: DisconnectedFilters,
        endings: EndedRegistry,
        pace: Pace,
        start: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        """``start`` runs work over turns."""
        self._start = start
        self._trie = trie
        self._disconnected = disconnected
        self._endings = endings
        self._pace = pace
        self._ready: dict[SessionPort, frozenset[str]] = {}

    def prepare(
        self, session: SessionPort, connection: SessionConnection, then: Callable[[], None]
    ) -> None:
        """Call ``then``, which attaches a session: now, or when its many filters are there.

        It is called earlier when the client has gone meanwhile.
        """
        if len(session.subscriptions) + len(session.ended or ()) > FILTERS_PER_STEP:
            self._start(self._over_turns(session, connection, then))
        else:
            then()

    async def _over_turns(
        self, session: SessionPort, connection: SessionConnection, then: Callable[[], None]
    ) -> None:
        """Check and add the filters; when rules change, check all again."""
        self._disconnected.hold(session)
        revision = -1
        while revision != (revision := _revision_of(connection)):
            forbidden: set[str] = set()
            steps = self._steps(session, connection, forbidden)
            is_over = False
            while not is_over:
                async with self._pace:
                    while not (is_over := self._is_over(session, connection, steps)):
                        if self._pace.is_over:
                            break
        if _is_here(session, connection):
            self._ready[session] = frozenset(forbidden)
        then()
        self._ready.pop(session, None)

    def take(self, session: SessionPort) -> frozenset[str] | None:
        """Return the subscriptions that rules deny, of a session whose others are in force now.

        None for a session that was not prepared.
        """
        forbidden = self._ready.pop(session, None)
        if forbidden is not None:
            self._trie.resume(session)
            self._trie.forget_matches()
        return forbidden

    @staticmethod
    def _is_over(
        session: SessionPort, connection: SessionConnection, steps: Iterator[None]
    ) -> bool:
        """Take a step; return whether it was the last, or the client has gone."""
        return not _is_here(session, connection) or next(steps, _END) is _END

    def _steps(
        self, session: SessionPort, connection: SessionConnection, forbidden: set[str]
    ) -> Iterator[None]:
        """Yield after each step of the work."""
        access = connection.access
        assert access is not None
        names = iter(tuple(session.subscriptions))
        while some := list(islice(names, FILTERS_PER_STEP)):
            self._trie.forget_matches()  # cheaper than with each filter
            for name in some:
                one = session.subscriptions[name]
                is_shared = one.group is not None
                if not access.may_subscribe(one.topic_filter, is_shared=is_shared):
                    forbidden.add(name)
                    if not is_shared:
                        self._trie.remove(one.topic_filter, session)
                elif not is_shared:
                    self._trie.add(one, session)
            yield
        ended = iter(tuple(session.ended.by_number.values()) if session.ended else ())
        while rest := list(islice(ended, FILTERS_PER_STEP)):
            for old in rest:
                if not access.may_subscribe(old.subscription.topic_filter):
                    self._endings.remove(old)
            yield


_END: object = object()


def _is_here(session: SessionPort, connection: SessionConnection) -> bool:
    return session.connection is connection and not connection.is_closing


def _revision_of(connection: SessionConnection) -> int:
    """Return the number of the rules that answers of now are by."""
    assert connection.access is not None
    return connection.access.revision
