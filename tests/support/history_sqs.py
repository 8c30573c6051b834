"""Rules of queues: sends arrive, deletes are final, FIFO groups keep their order."""

from collections import defaultdict
from collections.abc import Mapping

from tests.support.history import (
    Delivery,
    History,
    Operation,
    Outcome,
    Report,
    acknowledged,
    check_known,
)


def check_queues(history: History, *, dead_letters: Mapping[str, str] | None = None) -> Report:
    """Check a history whose receivers have emptied every queue.

    ``dead_letters`` says where messages of a queue may come instead of it. Sends with a group are
    of a FIFO queue. What comes again before its delete is answered is counted (``doubles``).
    Record a delete as ok only when it was answered before the lease could have ended.
    """
    report = Report()
    check_known(history, report)
    _check_missing(history, report, dead_letters or {})
    _check_deleted(history, report, dead_letters or {})
    _check_stored_twice(history, report)
    _check_groups(history, report)
    return report


def _check_missing(history: History, report: Report, dead: Mapping[str, str]) -> None:
    came = {(one.where, one.value) for one in history.deliveries}
    for send in acknowledged(history.sends.values()):
        if not {(send.where, send.value), (dead.get(send.where, ""), send.value)} & came:
            report.add("missing", send)


def _check_deleted(history: History, report: Report, dead: Mapping[str, str]) -> None:
    gone: dict[tuple[str, str], Operation] = {}
    never: dict[tuple[str, str], Operation] = {}  # deleted, so at no time a dead letter
    for delete in acknowledged(history.deletes):
        before = gone.setdefault((delete.where, delete.value), delete)
        if delete.ended < before.ended:
            gone[delete.where, delete.value] = delete
        if delete.where in dead:
            never[dead[delete.where], delete.value] = delete
    for delivery in history.deliveries:
        asked = delivery.asked if delivery.asked >= 0 else delivery.number
        known = gone.get((delivery.where, delivery.value))
        if known is not None and known.ended <= asked:
            report.add("deleted, and back", known, delivery)
        known = never.get((delivery.where, delivery.value))
        if known is not None:
            report.add("deleted, and dead", known, delivery)


def _check_stored_twice(history: History, report: Report) -> None:
    first: dict[tuple[str, str], Delivery] = {}
    for delivery in history.deliveries:
        before = first.setdefault((delivery.where, delivery.value), delivery)
        if before is delivery:
            continue
        if before.identity != delivery.identity:
            report.add("stored twice", before, delivery)
        else:
            report.counts["doubles"] += 1


def _check_groups(history: History, report: Report) -> None:
    """Check that each message of a group comes after all that were sent before it there."""
    groups: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for send in history.sends.values():
        if send.group and send.outcome is not Outcome.FAIL:
            groups[send.where, send.group].append(send)
    first: dict[tuple[str, str], Delivery] = {}
    for delivery in history.deliveries:
        first.setdefault((delivery.where, delivery.value), delivery)
    for (where, _), sends in groups.items():
        last: Delivery | None = None
        for send in sends:
            came = first.get((where, send.value))
            if came is None:
                continue
            if last is not None and came.number < last.number:
                report.add("group out of order", came, f"before {last}")
            else:
                last = came
