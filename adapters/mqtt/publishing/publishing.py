"""The way in: a run of publishes becomes records, and is acknowledged when the log has them.

Messages of QoS 0 are delivered at once and marked, so that the log's tail does not deliver them
again. A retained copy, and the identifier of an inbound QoS 2 message, are in the same append as
the message. A record of ``$delayed/<seconds>/<topic>`` says to when the write path delays it.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence

import structlog

from adapters.mqtt.access.client_access import ClientAccess
from adapters.mqtt.counters import Counters
from adapters.mqtt.delivery.distributor import Distributor
from adapters.mqtt.errors import ReasonCode
from adapters.mqtt.mapping import record_run
from adapters.mqtt.packets.delayed_topics import DELAYED_PREFIX, parse_delayed
from adapters.mqtt.ports import SessionPort
from adapters.mqtt.publishing.inbound_identifiers import InboundIdentifiers
from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.retained.store import RetainedStore
from adapters.mqtt.routes import Routes
from adapters.mqtt.wire import EXACTLY_ONCE, PublishRun, Will
from features.expiry import NEVER
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer, Part
from gateway.errors import (
    GatewayError,
    MessageTooLarge,
    NotLeader,
    StorageUnavailable,
    as_value,
)
from gateway.partition import Partition
from gateway.storage import OnDone
from gateway.streams import Item

OnPublished = Callable[[GatewayError | None], None]
OnReleased = Callable[[Sequence[int], StorageUnavailable | None], None]

log = structlog.get_logger()


class Publishing:
    """Appends what clients publish. Runs on the loop; nothing here blocks."""

    def __init__(  # noqa: PLR0913, PLR0917 - its surroundings, made once
        self,
        broker: Broker,
        clock: Clock,
        counters: Counters,
        coalescer: Coalescer,
        routes: Routes,
        feeds: FeedSet,
        distributor: Distributor,
        retained: RetainedStore,
        inbound: InboundIdentifiers,
    ) -> None:
        self._broker = broker
        self._append_queue = broker.append_queue
        self._clock = clock
        self._counters = counters
        self._coalescer = coalescer
        self._routes = routes
        self._feeds = feeds
        self._distributor = distributor
        self._retained = retained
        self._inbound = inbound
        self._removals = Coalescer(broker, reserved=True)

    @property
    def is_saturated(self) -> bool:
        """See ``AppendQueue.is_saturated``: publishers are to be held."""
        return self._append_queue.is_saturated

    def hold(self, release: Callable[[], None]) -> None:
        """Call ``release`` once, when the log's queue is low again."""
        self._append_queue.hold(release)

    def unhold(self, release: Callable[[], None]) -> None:
        """Call ``release`` no more."""
        self._append_queue.unhold(release)

    def publish(self, run: PublishRun, session: "SessionPort", on_done: OnPublished) -> bool:
        """Append a run; call ``on_done`` when it is durable by the flush policy.

        The caller has checked the topic, resolved its alias and asked the rules. ``on_done`` gets
        the error when nothing was appended. It runs before this returns only on an error, or when
        the log has a QoS 2 message already.

        Return False, with nothing changed and ``on_done`` not called, when one of several
        messages is too large: the caller then publishes each by itself.
        """
        count, topic = len(run.payloads), run.topic
        try:
            if run.qos == EXACTLY_ONCE:
                self._publish_once(run, session, on_done)
            else:
                self._append(run, session.client_id, on_done)
        except GatewayError as error:
            if count > 1 and isinstance(error, MessageTooLarge):
                run.topic = topic  # without its delay by now
                return False
            on_done(as_value(error))
        self._counters.publish_received += count
        return True

    def will_refusal(self, client_id: str, will: Will) -> MessageTooLarge | None:
        """Return the error of a will that its topic can never take, or None.

        That is a will too large for its topic's present config. Errors that may pass (a full
        disk, a missing topic) are handled when the will is due.
        """
        run = _run_of_will(client_id, will)
        try:
            if run.topic.startswith(DELAYED_PREFIX):
                _, run.topic = parse_delayed(run.topic)
            routed = self._routes.find(run.topic, run.qos)
            record = record_run(run, routed, client_id, self._clock.unix_ms())
            self._coalescer.check(self._feeds.target(routed), record)
        except MessageTooLarge as error:
            return as_value(error)
        except GatewayError:
            return None
        return None

    def publish_will(
        self,
        client_id: str,
        will: Will,
        session: "SessionPort | None",
        access: ClientAccess,
        again: Callable[[], None],
    ) -> None:
        """Publish a will; a failure is logged.

        The rules of this moment apply: a will that its client may not publish is dropped.
        ``again`` is called when its topic is another node's, or is being loaded.
        """
        run = _run_of_will(client_id, will)

        def done(error: GatewayError | None) -> None:
            if isinstance(error, NotLeader):
                again()
            elif error is not None:
                log.warning("will not published", client=client_id[:80], error=str(error))
            if (
                (error is None or error is refusal)
                and session is not None
                and session.will is will
            ):
                session.will = None
                if session.is_kept:
                    session.context.store.put_state(session)

        refusal = access.publish_refusal(run.topic, run.qos)
        if refusal is not None:
            self._counters.publish_refused += 1
            done(refusal)
            return
        self._counters.wills_published += 1
        try:
            self._append(run, client_id, done)
        except GatewayError as error:
            done(as_value(error))

    def release(
        self, session: "SessionPort", packet_ids: Sequence[int], on_done: OnReleased
    ) -> None:
        """Release identifiers for PUBREL; ``on_done`` gets a code for each (3.7.2.1).

        After PUBCOMP the client may use them for other messages. So PUBCOMP waits until their
        removal is durable: otherwise, after a crash, such a message would be taken for a repeated
        one. The removal may use the reserve of a full disk.
        """
        known = session.inbound.shards
        found = {one: known[one] for one in packet_ids if one in known}
        codes = [
            int(ReasonCode.SUCCESS if one in known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
            for one in packet_ids
        ]
        inbound = self._inbound
        items = inbound.removals(session.client_id, found)
        is_listed = session.inbound.release(found)
        is_away = session.is_kept and not all(map(inbound.is_here, set(found.values())))
        if not (items or is_listed or is_away):
            on_done(codes, None)
            return

        def done(error: StorageUnavailable | None) -> None:
            if error is not None:
                known.update(found)
            on_done(codes, error)

        def remove(items: list[Item]) -> None:
            if inbound.stream.is_rewriting:
                self._coalescer.seal()  # records that are rewritten must precede their removal
            inbound.stream.put(items, done, coalescer=self._removals)

        def listed(error: StorageUnavailable | None) -> None:
            still_here = inbound.removals(session.client_id, found)
            if error is not None or not still_here:
                done(error)
            else:
                remove(still_here)

        if is_away or is_listed:  # another node learns it from the state
            inbound.list_all(session)
            session.context.store.put_state(session, listed)
        else:
            remove(items)

    def forget(self, session: "SessionPort") -> None:
        """Remove all identifiers of a session that is over."""
        # Not ``is_kept``: DISCONNECT may have set the session's expiry to 0.
        items = self._inbound.removals(session.client_id, session.inbound.shards)
        session.inbound.release(list(session.inbound.shards))
        if items:
            self._coalescer.seal()  # removals must follow what they remove
            self._inbound.stream.put(items, _ignore, coalescer=self._removals)

    def _publish_once(
        self, run: PublishRun, session: "SessionPort", on_done: OnPublished
    ) -> None:
        """Append the messages of a QoS 2 run that are not repeated ones (section 4.3.3)."""
        known = session.inbound.shards
        fresh = _first_times(run.packet_ids, known)
        if not fresh:
            self._counters.duplicates += len(run.payloads)
            # The first one may not be durable yet: the answer must wait for it.
            self._coalescer.seal()
            if not known.keys() >= set(run.packet_ids):
                msg = "what this repeats was refused just now"
                raise StorageUnavailable(msg)
            self._broker.after_pending(on_done)
            return
        packet_ids = [run.packet_ids[at] for at in fresh]
        kept = run
        if len(fresh) < len(run.payloads):
            kept = run.part([run.payloads[at] for at in fresh], qos=run.qos)
        partition = self._target(kept)
        shard = partition.shard
        known.update(dict.fromkeys(packet_ids, self._inbound.place(shard)))

        def done(error: GatewayError | None) -> None:
            if error is not None:
                session.inbound.release(packet_ids)
            on_done(error)

        items: list[Item] = []
        if session.is_kept:
            items = self._inbound.items(session, packet_ids, shard)
        try:
            self._append(kept, session.client_id, done, items)
        except GatewayError:
            session.inbound.release(packet_ids)
            raise
        self._counters.duplicates += len(run.payloads) - len(fresh)

    def _target(self, run: PublishRun) -> Partition:
        """Return the partition of a run. Errors: as ``FeedSet.target``; those of a delay."""
        topic = run.topic
        if topic.startswith(DELAYED_PREFIX):
            _, topic = parse_delayed(topic)
        return self._feeds.target(self._routes.find(topic, run.qos))

    def _append(
        self,
        run: PublishRun,
        client_id: str,
        on_done: OnPublished,
        inbound: Sequence[Item] = (),
    ) -> None:
        if run.topic.startswith(DELAYED_PREFIX):
            self._append_delayed(run, client_id, on_done, inbound)
            return
        routed = self._routes.find(run.topic, run.qos)
        partition = self._feeds.target(routed)
        now_unix_ms = self._clock.unix_ms()
        if run.properties.message_expiry_interval is None:
            record = record_run(run, routed, client_id, now_unix_ms)
        else:
            record = record_run(run, routed, client_id, self._clock.deadline_unix_ms(0))
            record.timestamp_unix_ms = now_unix_ms
        items = self._retained.items(run, now_unix_ms) if run.retain else []
        if run.expires_at_unix_ms:  # live delivery counts by steady time
            run.expires_at_unix_ms = self._clock.steady_deadline(
                run.expires_at_unix_ms, now_unix_ms
            )
        if run.retain:
            if inbound:
                # Both streams share the coalescer, so this is the same append, or an earlier one,
                # which is harmless: the publisher sends the message again. The check comes first:
                # a message that the log refuses must not be retained.
                self._coalescer.check(partition, record)
                self._retained.put(items, _ignore)
                self._put_inbound(inbound, on_done, partition, (partition, record))
            else:
                self._retained.put(items, on_done, beside=[(partition, record)])
        elif inbound:
            self._put_inbound(inbound, on_done, partition, (partition, record))
        else:
            self._coalescer.add(partition, record, on_done)
        if not run.qos:
            feed = self._feeds.get(partition.partition_id)
            if feed is not None:
                feed.slow_receivers.number(run)
                self._distributor.deliver(run, feed)

    def _append_delayed(
        self, run: PublishRun, client_id: str, on_done: OnPublished, inbound: Sequence[Item]
    ) -> None:
        """Store a delayed run; when it is due, it is appended to its topic.

        Its expiry interval begins then, and it is retained then.
        """
        delay_ms, run.topic = parse_delayed(run.topic)
        routed = self._routes.find(run.topic, run.qos)
        partition = self._feeds.target(routed)
        now_unix_ms = self._clock.unix_ms()
        due_unix_ms = now_unix_ms + delay_ms
        record = record_run(run, routed, client_id, due_unix_ms)
        record.timestamp_unix_ms = now_unix_ms
        record.deliver_at_unix_ms = due_unix_ms
        if inbound:
            self._put_inbound(inbound, on_done, partition, (partition, record))
        else:
            self._coalescer.add(partition, record, on_done)

    def _put_inbound(
        self, items: Sequence[Item], on_done: OnDone, partition: Partition, part: Part
    ) -> None:
        """Append identifiers with their messages, in the shard of the messages' partition."""
        self._inbound.stream.put(items, on_done, beside=[part], shard=partition.shard)

    def live_refused(self) -> None:
        """Note that the log refused messages of QoS 0 that may have been delivered."""
        if self._feeds.slow_receiver_count:
            asyncio.get_running_loop().call_soon(self._settle_live)

    def _settle_live(self) -> None:
        self._coalescer.seal()
        self._feeds.settle_live()

    def retain_foreign(self, run: PublishRun) -> None:
        """Retain a record of another protocol that has the header ``mqtt.retain``."""
        try:
            now_unix_ms = self._clock.unix_ms()
            stored_unix_ms = NEVER
            if run.expires_at_unix_ms:
                ahead_ms = self._clock.steady_deadline(0, now_unix_ms)
                stored_unix_ms = run.expires_at_unix_ms - ahead_ms
            items = self._retained.items(run, now_unix_ms, expires_at_unix_ms=stored_unix_ms)
            self._retained.put(items, _ignore)
        except GatewayError as error:
            log.warning("not retained", topic=run.topic[:80], error=str(error))


def _run_of_will(client_id: str, will: Will) -> PublishRun:
    return PublishRun(
        will.topic.encode(),
        [will.payload],
        qos=will.qos,
        retain=will.retain,
        properties=will.properties,
        client_id=client_id,
    )


def _first_times(packet_ids: Sequence[int], known: Collection[int]) -> list[int]:
    """Return the index of each new identifier's first occurrence in a run."""
    seen: set[int] = set()
    fresh = []
    for at, packet_id in enumerate(packet_ids):
        if packet_id not in known and packet_id not in seen:
            seen.add(packet_id)
            fresh.append(at)
    return fresh


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the outcome: a client that got no answer sends the packet again."""
