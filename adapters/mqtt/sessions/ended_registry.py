"""Ended subscriptions of all sessions, kept until the session has read past them."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from adapters.mqtt.counters import Counters
from adapters.mqtt.delivery.ended_index import EndedIndex
from adapters.mqtt.ports import SessionPort
from adapters.mqtt.subscriptions.ended import EndedSubscription, EndedSubscriptions
from adapters.mqtt.subscriptions.subscription import Subscription

LOOKED_AT_MAX: Final = 10_000  # ended subscriptions, in one sweep


class EndedRegistry:
    """Ended subscriptions of all sessions.

    Of one session's the oldest are dropped above ``count_max``, and above ``filter_bytes_max``
    bytes of their filters.
    """

    def __init__(
        self,
        index: EndedIndex,
        counters: Counters,
        dirty: "set[SessionPort]",
        *,
        count_max: int,
        filter_bytes_max: int,
    ) -> None:
        self._index = index
        self._counters = counters
        self._dirty = dirty
        self._count_max = count_max
        self._filter_bytes_max = filter_bytes_max
        self._attached: OrderedDict[SessionPort, None] = OrderedDict()  # who have any

    def end(
        self, session: "SessionPort", subscription: Subscription, live: Mapping[int, int]
    ) -> EndedSubscription[SessionPort] | None:
        """Keep the rest of an attached session's subscription, up to the ``live`` offsets.

        Return None when nothing is left that it matched.
        """
        if not subscription.qos or subscription.group is not None:
            return None  # QoS 0 is for who is there, and what is shared waits in the group
        starts, ends = {}, {}
        for partition_id, offset in session.behind.items():
            start = subscription.starts.get(partition_id, 0)
            end = live.get(partition_id, 0)
            if max(start, offset) < end:
                starts[partition_id], ends[partition_id] = start, end
        if not ends:
            return None
        ended = _made_of(session)
        one = EndedSubscription(
            session,
            ended.next_number,
            subscription.without_starts(),
            starts=starts,
            ends=ends,
        )
        ended.add(one)
        self._index.add(one)
        self._attached[session] = None
        while ended.is_beyond(self._count_max, self._filter_bytes_max):
            self._counters.ended_dropped += 1
            self.remove(next(iter(ended.by_number.values())))
        return one

    def remove(self, one: EndedSubscription[SessionPort]) -> None:
        """Forget one; the session's next record says so."""
        session = one.session
        self._index.remove(one)
        if session.ended is not None:
            session.ended.remove(one)
            self._dirty.add(session)

    def restore(self, one: EndedSubscription[SessionPort]) -> None:
        """Take back one that was written down; they come in the order of their numbers."""
        ended = _made_of(one.session)
        ended.add(one)
        ended.kept.add(one.number)

    def attach(self, session: "SessionPort", *, is_checked: bool = False) -> None:
        """A client is there: what it may still read counts, the rest is over.

        ``is_checked``: what it may not read has been removed.
        """
        if session.ended is None:
            return
        self._attached[session] = None
        if not is_checked:
            self.drop_forbidden(session)
        for one in session.ended.by_number.values():
            self._index.add(one)

    def drop_forbidden(self, session: "SessionPort") -> bool:
        """Forget what an attached session may not read any more; say whether there was any."""
        if session.ended is None or session.connection is None:
            return False
        access = session.connection.access
        assert access is not None
        gone = [
            one
            for one in session.ended.by_number.values()
            if not access.may_subscribe(one.subscription.topic_filter)
        ]
        for one in gone:
            self.remove(one)
        return bool(gone)

    def detach(self, session: "SessionPort") -> None:
        """A client has gone, and where it is behind is still known."""
        ended = session.ended
        if ended is None:
            return
        self._attached.pop(session, None)
        self._forget_passed(session)
        for one in ended.by_number.values():
            self._index.remove(one)

    def sweep(self) -> None:
        """Forget those that were passed, of some sessions at a time."""
        left = LOOKED_AT_MAX
        for _ in range(len(self._attached)):
            session, _ = self._attached.popitem(last=False)
            left -= len(session.ended or ()) + 1
            self._forget_passed(session)
            if session.ended is not None:
                self._attached[session] = None
            if left <= 0:
                return

    def _forget_passed(self, session: "SessionPort") -> None:
        ended = session.ended
        if ended is None:
            return
        for one in tuple(ended.by_number.values()):
            if one.is_passed(session.behind):
                self.remove(one)
        if not ended.by_number and not ended.kept:
            session.ended = None


def _made_of(session: "SessionPort") -> EndedSubscriptions[SessionPort]:
    """Return a session's ended subscriptions, made when it has had none."""
    if session.ended is None:
        session.ended = EndedSubscriptions()
    return session.ended
