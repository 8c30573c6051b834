"""Rules of partitions: nothing acknowledged is lost, doubled, moved or out of order."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection

from tests.support.history import (
    Delivery,
    History,
    Operation,
    Outcome,
    Report,
    acknowledged,
    check_known,
)

Event = Operation | Delivery
_Places = dict[tuple[str, int], Event]


def check_partitions(history: History, *, resending: Collection[str] = ()) -> Report:
    """Check a history whose reading has come to the end of every partition.

    ``resending`` are clients that send again without a sequence: their doubles are counted
    (``doubles``), and their order is not promised. All else holds for them too.
    """
    report = Report()
    check_known(history, report)
    places = _check_places(history, report)
    _check_lost(history, report)
    _check_doubles(history, report, resending)
    _check_polls(history, report, places)
    _check_order(history, report, resending)
    return report


def _located(history: History) -> list[Event]:
    """Return every event that names an offset: deliveries, and acknowledged sends."""
    sends = [one for one in acknowledged(history.sends.values()) if one.offset >= 0]
    return [*history.deliveries, *sends]


def _check_places(history: History, report: Report) -> _Places:
    places: _Places = {}
    for event in _located(history):
        first = places.setdefault((event.where, event.offset), event)
        if first.value != event.value:
            report.add("two values at one offset", first, event)
    for delivery in history.deliveries:
        send = history.sends.get(delivery.value)
        if send is not None and send.where != delivery.where:
            report.add("in another partition", send, delivery)
    return places


def _check_lost(history: History, report: Report) -> None:
    read_to: dict[str, int] = {}
    for one in history.deliveries:
        read_to[one.where] = max(read_to.get(one.where, -1), one.offset)
    came = {one.value for one in history.deliveries}
    for send in acknowledged(history.sends.values()):
        if send.value not in came:
            is_below = 0 <= send.offset < read_to.get(send.where, -1)
            report.add("lost" if is_below else "unseen", send)


def _check_doubles(history: History, report: Report, resending: Collection[str]) -> None:
    offsets: dict[str, dict[tuple[str, int], Event]] = defaultdict(dict)
    for event in _located(history):
        offsets[event.value].setdefault((event.where, event.offset), event)
    for value, found in offsets.items():
        send = history.sends.get(value)
        if len(found) < 2 or send is None:
            continue
        if send.client in resending:
            report.counts["doubles"] += len(found) - 1
        else:
            report.add("duplicate", *found.values())


def _check_polls(history: History, report: Report, places: _Places) -> None:
    known: dict[str, list[int]] = defaultdict(list)
    for where, offset in sorted(places):
        known[where].append(offset)
    last: dict[tuple[str, str], Delivery] = {}
    for one in history.deliveries:
        before = last.get((one.client, one.where))
        last[one.client, one.where] = one
        if before is None:
            continue
        if one.offset <= before.offset:
            report.add("nonmonotonic poll", before, one)
            continue
        offsets = known[one.where]
        following = offsets[bisect_right(offsets, before.offset)]
        if following < one.offset:
            report.add("skipped poll", before, one, places[one.where, following])


def _check_order(history: History, report: Report, resending: Collection[str]) -> None:
    offsets: dict[str, int] = {}
    for one in history.deliveries:
        offsets.setdefault(one.value, one.offset)
    last: dict[tuple[str, str], tuple[Operation, int]] = {}
    for send in history.sends.values():
        offset = offsets.get(send.value)
        if offset is None or send.client in resending or send.outcome is Outcome.FAIL:
            continue
        before = last.get((send.client, send.where))
        if before is not None and before[1] > offset:
            report.add(
                "out of order", f"{before[0]} is at {before[1]}", f"{send} is at {offset}"
            )
        last[send.client, send.where] = send, offset
