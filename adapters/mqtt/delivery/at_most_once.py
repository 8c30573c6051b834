"""Delivery at QoS 0 to connected receivers; slow ones read the messages from the log."""

from functools import partial
from typing import Final

from adapters.mqtt.delivery.publish_forms import PublishForm, form_of
from adapters.mqtt.ports import FeedPort, SessionConnection, SessionPort, SubscriberMatch
from adapters.mqtt.wire import PublishRun
from features.expiry import remaining_s
from gateway.clock import Clock

EXPIRED: Final = 0


def expiry_s_of(run: PublishRun, clock: Clock) -> int | None:
    """Return the seconds that the messages of a run have left: 0 is expired, None is never."""
    if not run.expires_at_unix_ms:
        return None
    return remaining_s(run.expires_at_unix_ms, clock.steady_unix_ms())


def is_held_back(session: "SessionPort", run: PublishRun, feed: "FeedPort | None") -> bool:
    """Return whether a session that is slow, or behind on a feed, gets no run of QoS 0 now.

    It reads the run from the log later. Without a ``feed`` it is not in the log, and dropped.
    """
    if feed is not None:
        return feed.slow_receivers.holds_back(session, run)
    connection = session.connection
    if connection is None or connection.out_bytes <= session.context.receiver_bytes_max:
        return False
    session.context.counters.dropped += len(run.payloads)
    return True


def send_once(
    session: "SessionPort",
    run: PublishRun,
    match: "SubscriberMatch",
    expiry_s: int | None,
    feed: "FeedPort | None",
) -> None:
    """Send at QoS 0, unless the receiver is too slow for it: see ``is_held_back``."""
    connection = session.connection
    if connection is None:
        return
    if match.no_local and run.client_id == session.client_id:
        own = match.for_own()
        if own is None:
            return
        match = own
    if connection.topic_alias_maximum:
        session.context.write_journals()  # aliases of this turn are set before they are used
    if connection.out_bytes > session.live_bytes_max and is_held_back(session, run, feed):
        return
    _send_once(
        session,
        run,
        retain=run.retain and match.retain_as_published,
        identifiers=match.identifiers,
        expiry_s=expiry_s,
    )


def _send_once(
    session: "SessionPort",
    run: PublishRun,
    *,
    retain: bool,
    identifiers: tuple[int, ...],
    expiry_s: int | None,
) -> None:
    connection = session.connection
    if connection is None:
        return
    count = len(run.payloads)
    if connection.topic_alias_maximum:
        session.context.write_journals()  # aliases of this turn are set before they are used
    if connection.out_bytes > session.context.receiver_bytes_max:
        session.context.counters.dropped += count
        return
    form = form_for(
        connection, run, qos=0, retain=retain, identifiers=identifiers, expiry_s=expiry_s
    )
    if form.largest_bytes > connection.packet_bytes_max:
        send_fitting(session, run, form, retain=retain, identifiers=identifiers)
        return
    connection.send(form.data())
    session.context.counters.publish_sent += count


def send_part(
    session: "SessionPort",
    run: PublishRun,
    start: int,
    stop: int,
    *,
    retain: bool,
    identifiers: tuple[int, ...],
) -> None:
    """Send a part of a run at QoS 0: a member's share of a shared subscription."""
    part = run
    if stop - start < len(run.payloads):
        part = run.part(run.payloads[start:stop], qos=0)
    expiry_s = expiry_s_of(run, session.context.clock)
    _send_once(session, part, retain=retain, identifiers=identifiers, expiry_s=expiry_s)


def send_fitting(
    session: "SessionPort",
    run: PublishRun,
    form: PublishForm,
    *,
    retain: bool,
    identifiers: tuple[int, ...],
) -> None:
    """Send the messages at QoS 0 that are within Maximum Packet Size (MQTT-3.1.2-24)."""
    connection = session.connection
    assert connection is not None
    bytes_max = connection.packet_bytes_max
    payloads = [
        payload
        for index, payload in enumerate(run.payloads)
        if form.packet_bytes(index) <= bytes_max
    ]
    session.context.counters.too_large += len(run.payloads) - len(payloads)
    if payloads:
        part = run.part(payloads, qos=0)
        send_part(session, part, 0, len(payloads), retain=retain, identifiers=identifiers)


def form_for(  # noqa: PLR0913 - what makes one form differ from another
    connection: "SessionConnection",
    run: PublishRun,
    *,
    qos: int,
    retain: bool,
    identifiers: tuple[int, ...],
    expiry_s: int | None,
    may_set_alias: bool = True,
) -> PublishForm:
    """Return what leaves for a client; aliases are first come, first served (3.3.2.3.4).

    What may leave later than what comes after it sets none: that could use it already.
    """
    form = partial(
        form_of,
        run,
        version=connection.version,
        qos=qos,
        retain=retain,
        identifiers=identifiers,
        expiry_s=expiry_s,
    )
    count_max = connection.topic_alias_maximum
    if not count_max:
        return form()
    aliases = connection.aliases
    alias = aliases.get(run.topic)
    if alias is not None:
        return form(alias=alias, with_topic=False)
    if len(aliases) >= count_max or not may_set_alias:
        return form()
    found = form(alias=len(aliases) + 1)
    if found.largest_bytes > connection.packet_bytes_max:
        return form()  # an alias is set only where the packet that says so will leave
    aliases[run.topic] = len(aliases) + 1
    return found


def fitting_parts(
    form: PublishForm, start: int, stop: int, bytes_max: int
) -> list[tuple[int, int]]:
    """Return the ranges of messages ``start`` to ``stop`` without a packet above a size."""
    if form.largest_bytes <= bytes_max:
        return [(start, stop)]
    parts: list[tuple[int, int]] = []
    for at in range(start, stop):
        if form.packet_bytes(at) > bytes_max:
            continue
        if parts and parts[-1][1] == at:
            parts[-1] = (parts[-1][0], at + 1)
        else:
            parts.append((at, at + 1))
    return parts
