"""Random good histories pass, and each fault put into one is found."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.history import History, Operation, Outcome
from tests.support.history_kafka import check_partitions
from tests.support.history_mqtt import check_topics
from tests.support.history_sqs import check_queues

PRODUCERS = ("p0", "p1", "p2")
PLACES = ("w0", "w1")
seeds = st.integers(0, 1 << 32)


def send_some(history: History, chooser: random.Random, **settings: int) -> list[Operation]:
    """Record sends; return those that the server has stored, in its order.

    At least one is acknowledged for each place, so that there is something to lose; every third
    is unknown, stored or not, and every fourth of the rest refused.
    """
    stored = []
    for number in range(chooser.randrange(6, 30)):
        where = PLACES[number % len(PLACES)]
        client = chooser.choice(PRODUCERS)
        send = history.send(client, where, f"{client}/{number}", group=client, **settings)
        if number >= len(PLACES) * 3 and chooser.randrange(3) == 0:
            if chooser.randrange(2):
                stored.append(send)
        elif number >= len(PLACES) * 3 and chooser.randrange(4) == 0:
            history.end(send, Outcome.FAIL)
        else:
            history.end(send, Outcome.OK)
            stored.append(send)
    return stored


def good_log(chooser: random.Random) -> History:
    """Return a history of producers and consumers that begin anywhere and read to the end."""
    history = History()
    logs: dict[str, list[Operation]] = {where: [] for where in PLACES}
    for send in send_some(history, chooser):
        if send.outcome is Outcome.OK:
            send.offset = len(logs[send.where])
        logs[send.where].append(send)
    for consumer in ("from the start", "later"):
        for where, log in logs.items():
            start = 0 if consumer == "from the start" else chooser.randrange(len(log))
            for offset in range(start, len(log)):
                history.take(consumer, where, log[offset].value, offset=offset)
    return history


def lose(history: History, chooser: random.Random) -> None:
    value = an_acknowledged(history, chooser).value
    history.deliveries = [one for one in history.deliveries if one.value != value]


def double(history: History, chooser: random.Random) -> None:
    send = an_acknowledged(history, chooser)
    history.take("from the start", send.where, send.value, offset=1_000)


def swap(history: History, chooser: random.Random) -> None:
    one = an_acknowledged(history, chooser)
    here = [delivery for delivery in history.deliveries if delivery.where == one.where]
    for delivery in here:
        delivery.offset = {0: 1, 1: 0}.get(delivery.offset, delivery.offset)


def go_back(history: History, chooser: random.Random) -> None:
    last = chooser.choice([one for one in history.deliveries if one.offset > 0])
    history.take(last.client, last.where, last.value, offset=last.offset)


def skip(history: History, _: random.Random) -> None:
    mine = [one for one in history.deliveries if one.client == "from the start"]
    first = [one for one in mine if one.where == PLACES[0]]
    for delivery in (first[0], first[-1]):
        history.take("skips", delivery.where, delivery.value, offset=delivery.offset)


def refuse(history: History, chooser: random.Random) -> None:
    an_acknowledged(history, chooser).outcome = Outcome.FAIL


def invent(history: History, _: random.Random) -> None:
    history.take("later", PLACES[1], "invented", offset=1_000)


def an_acknowledged(history: History, chooser: random.Random) -> Operation:
    sends = [one for one in history.sends.values() if one.outcome is Outcome.OK]
    return chooser.choice(sends)


@given(seed=seeds)
def test_a_good_log_passes(seed: int) -> None:
    assert str(check_partitions(good_log(random.Random(seed)))) == "no problem"


Fault = Callable[[History, random.Random], None]


@pytest.mark.parametrize(
    ("fault", "rules"),
    [
        (lose, {"lost", "unseen"}),
        (double, {"duplicate"}),
        (swap, {"two values at one offset"}),
        (go_back, {"nonmonotonic poll"}),
        (skip, {"skipped poll"}),
        (refuse, {"refused, and there"}),
        (invent, {"never sent"}),
    ],
)
@given(seed=seeds)
def test_a_fault_of_a_log_is_found(fault: Fault, rules: set[str], seed: int) -> None:
    chooser = random.Random(seed)
    history = good_log(chooser)
    fault(history, chooser)
    report = check_partitions(history)
    assert report.rules & rules, str(report)


def good_topics(chooser: random.Random) -> History:
    """Return a history of two subscribers who got all in the order stored, at QoS 2."""
    history = History()
    stored = send_some(history, chooser, qos=2)
    for subscriber in ("one", "two"):
        for send in stored:
            history.take(subscriber, send.where, send.value, qos=2)
    return history


def reverse(history: History, _: random.Random) -> None:
    """Exchange two messages of a publisher in one place, in each subscriber's order."""
    client, where = history.sends[history.deliveries[0].value].client, PLACES[0]
    second = history.send(client, where, "second", group=client, qos=2)
    third = history.send(client, where, "third", group=client, qos=2)
    for send in (second, third):
        history.end(send, Outcome.OK)
    for send in (third, second):
        for subscriber in ("one", "two"):
            history.take(subscriber, where, send.value, qos=2)


def again(history: History, chooser: random.Random) -> None:
    send = an_acknowledged(history, chooser)
    history.take("two", send.where, send.value, qos=2, identity="another")


def check_two(history: History) -> set[str]:
    return check_topics(history, {"one": ["one"], "two": ["two"]}).rules


@given(seed=seeds)
def test_good_topics_pass(seed: int) -> None:
    assert check_two(good_topics(random.Random(seed))) == set()


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (lose, "QoS 2 missing"),
        (again, "QoS 2 twice"),
        (reverse, "out of order"),
        (refuse, "refused, and there"),
        (invent, "never sent"),
    ],
)
@given(seed=seeds)
def test_a_fault_of_topics_is_found(fault: Fault, rule: str, seed: int) -> None:
    chooser = random.Random(seed)
    history = good_topics(chooser)
    fault(history, chooser)
    assert rule in check_two(history)


def good_queues(chooser: random.Random) -> History:
    """Return a history of FIFO queues whose messages come, some again, and are deleted."""
    history = History()
    for send in send_some(history, chooser):
        for _ in range(chooser.randrange(1, 3)):
            asked = history.now()
            history.take("one", send.where, send.value, asked=asked)
        delete = history.delete("one", send.where, send.value)
        if chooser.randrange(4):
            history.end(delete, Outcome.OK)
        else:
            history.take("two", send.where, send.value, asked=history.now())
    return history


def come_back(history: History, _: random.Random) -> None:
    delete = next(one for one in history.deletes if one.outcome is Outcome.OK)
    history.take("two", delete.where, delete.value, asked=history.now())


@given(seed=seeds)
def test_good_queues_pass(seed: int) -> None:
    assert check_queues(good_queues(random.Random(seed))).rules == set()


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (lose, "missing"),
        (come_back, "deleted, and back"),
        (again, "stored twice"),
        (reverse, "group out of order"),
        (refuse, "refused, and there"),
        (invent, "never sent"),
    ],
)
@given(seed=seeds)
def test_a_fault_of_queues_is_found(fault: Fault, rule: str, seed: int) -> None:
    chooser = random.Random(seed)
    history = good_queues(chooser)
    delete = history.delete("one", PLACES[0], next(iter(history.sends)))
    history.end(delete, Outcome.OK)
    fault(history, chooser)
    assert rule in check_queues(history).rules
