"""A pending fetch of an incremental session, or a full one that makes a session."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs.fetch_codec import FetchRequest
from adapters.kafka.codecs.metadata_codec import BrokerAddress
from adapters.kafka.errors import ErrorCode
from adapters.kafka.fetching.fetched_partitions import encode_answer, remove_unauthorized
from adapters.kafka.fetching.pending_fetch import PendingFetch
from adapters.kafka.fetching.ports import FetchReply, Topics
from adapters.kafka.metadata.broker_addresses import other_brokers
from adapters.kafka.node.fetch_session import FetchSession, SessionPartition
from adapters.kafka.node.fetch_target import FetchTarget
from adapters.kafka.node.large_requests import SLICE_ELEMENTS, slices, yield_to_loop
from adapters.kafka.session import Session
from gateway.model import Buffer


class SessionFetch(PendingFetch):
    """A fetch that reads the ready partitions of a session, and responds with their news."""

    __slots__ = ("_fetch_session", "_is_full", "_request")

    def __init__(
        self,
        request: FetchRequest,
        session: Session,
        version: int,
        reply: FetchReply,
        fetch_session: FetchSession,
    ) -> None:
        super().__init__(request, session, version, reply)
        self._request = request
        self._fetch_session = fetch_session
        self._is_full = not fetch_session.id
        fetch_session.pending = self
        fetch_session.reads_uncommitted = not self._is_committed

    def resolve(self, topics: Topics) -> None:
        """Add partitions to the session, or change them."""
        for ref, partitions in topics:
            for found in self._resolve(ref, partitions):
                self._fetch_session.put(ref, found)

    async def join(self, topics: Topics) -> None:
        """Do nothing: the session has the partitions already."""

    def start(self) -> None:
        """Forget partitions, look up those that had errors, and read for the first time."""
        if self._is_over:
            return
        fetch_session, cache = self._fetch_session, self._node.fetch_sessions
        for ref, numbers in self._request.forgotten if not self._is_full else ():
            for number in numbers:
                fetch_session.forget(ref, number)
        if not self._is_full and not fetch_session.partitions:
            self._end_session()
        elif self._is_full or cache.touch(fetch_session):
            self._renew_and_attempt()

    def _end_session(self) -> None:
        """Remove a session without partitions; the request is served without it."""
        self._fetch_session.pending = None
        self._node.fetch_sessions.remove(self._fetch_session)
        plain = PendingFetch(self._request, self._session, self._version, self._reply)
        plain.resolve(self._request.topics)
        plain.start()

    # --- looking up again

    def _renew_and_attempt(self) -> None:
        stale = self._stale()
        if len(stale) > SLICE_ELEMENTS:
            self._start(self._renew_large(stale))
            return
        self._renew(stale)
        self.attempt()

    def _stale(self) -> list[SessionPartition]:
        """Return the partitions to look up: all, if permissions may have changed."""
        fetch_session = self._fetch_session
        if self._is_full:
            return []
        if fetch_session.revision != self._revision:
            fetch_session.revision = self._revision
            return list(fetch_session.partitions.values())
        return [one for one in fetch_session.ready if one.is_stale]

    def _renew(self, stale: Sequence[SessionPartition]) -> None:
        for one in stale:
            [found] = self._resolve(one.ref, [one.request])
            if found.partition is not one.partition or found.error or one.error:
                self._fetch_session.put(one.ref, found)

    async def _renew_large(self, stale: Sequence[SessionPartition]) -> None:
        for some in slices(stale):
            self._renew(some)
            await yield_to_loop()
        self._readable = self._readable_in_order()
        await self._read_large(self._allowance())

    # --- reading and waiting

    def attempt(self) -> None:
        """Read what is ready; respond, or wait for more."""
        self._readable = self._readable_in_order()
        super().attempt()

    def _readable_in_order(self) -> list[FetchTarget]:
        found = self._fetch_session.in_order()
        return [one for one in found if one.partition is not None]

    def _is_waitable(self) -> bool:
        return self._fetch_session.is_waitable

    def _wait_for(self, readable: Sequence[FetchTarget], bytes_min: int) -> None:  # noqa: ARG002
        """Wait for any partition of the session; one wait is enough for all slices."""
        if self._fetch_session.waiter is None:
            self._waiters.append(self._fetch_session.wait(bytes_min, self._on_room))

    # --- the response

    def _answer(self) -> None:
        if self._is_throttled():
            self.refuse(ErrorCode.NONE, session_id=self._fetch_session.id)
            return
        self._leave()
        self._reply.hurry = None
        found = self._fetch_session.in_order()
        remove_unauthorized(self._session, _by_topic(found), since=self._revision)
        if self._is_full:
            self._node.fetch_sessions.admit(self._fetch_session)
        if len(found) > SLICE_ELEMENTS:
            self._start(self._answer_found(found))
            return
        pieces = self._encode(found, other_brokers(self._session))
        self._fetch_session.settle(found)
        self._end(pieces)

    async def _answer_found(self, found: Sequence[SessionPartition]) -> None:
        nodes = other_brokers(self._session)
        pieces = await self._node.large_request_thread.run(self._encode, found, nodes)
        for some in slices(found):
            self._fetch_session.settle(some)
            await yield_to_loop()
        self._end(pieces)

    def _encode(
        self, found: Sequence[SessionPartition], nodes: Sequence[BrokerAddress]
    ) -> list[Buffer]:
        """Return the response: of a full fetch with all partitions, else with those with news."""
        answered = found if self._is_full else [one for one in found if one.has_news]
        return encode_answer(
            self._version, _by_topic(answered), self._fetch_session.id, nodes=nodes
        )

    def _end(self, pieces: list[Buffer]) -> None:
        self._fetch_session.pending = None
        if not self._fetch_session.id:
            self._fetch_session.close()
        self._send(pieces)

    def _cancel(self) -> None:
        super()._cancel()
        fetch_session = self._fetch_session
        if fetch_session.pending is self:
            fetch_session.pending = None
        if not fetch_session.id:
            fetch_session.close()


def _by_topic(
    found: Sequence[SessionPartition],
) -> Iterator[tuple[TopicRef, Sequence[SessionPartition]]]:
    for ref, targets in groupby(found, attrgetter("ref")):
        yield ref, list(targets)
