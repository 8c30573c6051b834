"""The filters of sessions whose clients have gone, removed over turns of the loop.

A session may have 10,000 filters, and to remove them takes 0.1 s. They match nothing from the
moment on that the client has gone; then they are removed, some in each turn. A client that comes
back meanwhile has them in force at once.
"""

from collections.abc import Callable, Coroutine, Iterable

from adapters.mqtt.ports import SessionPort, Subscriber
from adapters.mqtt.reading.pacing import FILTERS_PER_STEP, Pace
from adapters.mqtt.subscriptions.trie import SubscriptionTrie


class DisconnectedFilters:
    """Removes filters of sessions that are away. ``start`` runs work over turns."""

    def __init__(
        self,
        trie: SubscriptionTrie[Subscriber],
        pace: Pace,
        start: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        self._trie = trie
        self._pace = pace
        self._start = start
        self._left: dict[SessionPort, list[str]] = {}  # filters still to be removed

    def leave(self, session: "SessionPort", filters: list[str]) -> None:
        """Let filters of a session match nothing more, and remove them."""
        if len(filters) <= FILTERS_PER_STEP and session not in self._left:
            self._remove(session, filters)
            self._trie.resume(session)  # it may have gone while its filters were prepared
            return
        self._trie.suspend(session)
        self._left[session] = filters
        self._start(self._over_turns(session))

    def hold(self, session: "SessionPort") -> None:
        """Let a session that comes back match nothing until ``resume`` of the trie."""
        self._left.pop(session, None)
        self._trie.suspend(session)

    def come_back(self, session: "SessionPort", forbidden: Iterable[str]) -> None:
        """Leave the rest of a session's filters where they are, but for those out of force."""
        if self._left.pop(session, None) is None:
            return
        self._trie.resume(session)
        self._remove(session, forbidden)

    def _remove(self, session: "SessionPort", filters: Iterable[str]) -> None:
        for topic_filter in filters:
            self._trie.remove(topic_filter, session)

    async def _over_turns(self, session: "SessionPort") -> None:
        while session in self._left:
            async with self._pace:
                self._step(session)
                while session in self._left and not self._pace.is_over:
                    self._step(session)

    def _step(self, session: "SessionPort") -> None:
        left = self._left.get(session)
        if left is None:
            return
        self._remove(session, left[-FILTERS_PER_STEP:])
        del left[-FILTERS_PER_STEP:]
        if not left:
            del self._left[session]
            self._trie.resume(session)
