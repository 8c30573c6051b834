"""Rules of MQTT: QoS 1 and 2 arrive, QoS 2 once, a topic keeps the order of each publisher."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.support.history import (
    Delivery,
    History,
    Report,
    acknowledged,
    check_known,
)


def check_topics(history: History, receivers: Mapping[str, Sequence[str]]) -> Report:
    """Check a history whose subscribers have taken all there was.

    ``receivers`` names who must get every message: a subscriber as its only member, or a shared
    subscription with its members, who get each message between them and keep no order. Deliveries
    carry the QoS of their subscription. Doubles are counted (``doubles``), unless both the publish
    and the subscription are of QoS 2.
    """
    report = Report()
    check_known(history, report)
    by_client: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        by_client[delivery.client].append(delivery)
    for name, members in receivers.items():
        came = [delivery for member in members for delivery in by_client[member]]
        _check_missing(history, report, name, came)
        _check_twice(history, report, came)
        if len(members) == 1:
            _check_order(history, report, came)
    return report


def _check_missing(
    history: History, report: Report, name: str, came: Sequence[Delivery]
) -> None:
    values = {delivery.value for delivery in came}
    for send in acknowledged(history.sends.values()):
        if send.qos and send.value not in values:
            report.add(f"QoS {send.qos} missing", f"{name} lacks {send}")


def _check_twice(history: History, report: Report, came: Sequence[Delivery]) -> None:
    first: dict[str, Delivery] = {}
    for delivery in came:
        before = first.setdefault(delivery.value, delivery)
        if before is delivery:
            continue
        send = history.sends.get(delivery.value)
        if send is not None and send.qos == delivery.qos == 2:
            report.add("QoS 2 twice", before, delivery)
        else:
            report.counts["doubles"] += 1


def _check_order(history: History, report: Report, came: Sequence[Delivery]) -> None:
    """Check that first arrivals of a publisher's messages of a topic are in the order sent."""
    seen: set[str] = set()
    last: dict[tuple[str, str], Delivery] = {}
    for delivery in came:
        send = history.sends.get(delivery.value)
        if send is None or delivery.value in seen:
            continue
        seen.add(delivery.value)
        before = last.get((send.client, send.where))
        if before is not None and history.sends[before.value].began > send.began:
            report.add("out of order", before, delivery)
        last[send.client, send.where] = delivery
