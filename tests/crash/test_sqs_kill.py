"""kill -9 at random moments under SQS load: what was acknowledged is so afterwards.

No acknowledged send is lost, no message whose delete was acknowledged comes back, FIFO groups stay
in order and without doubles, and nothing is lost or doubled on its way from a queue to its dead
letters. Data handed to the kernel survives the death of a process, so each flush policy promises
the same here.
"""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.crash.kill_schedule import how_often, moments, small_segments
from tests.support.history import History
from tests.support.history_sqs import check_queues
from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_load import (
    VISIBILITY_S,
    FifoReceiver,
    FifoSender,
    Ledger,
    Receiver,
    Sender,
    Worker,
)
from tests.support.sqs_raw import JsonClient
from tests.support.waiting import wait_until

ACKS_BETWEEN_KILLS_MAX = 1_500
DRAIN_S_MAX = 120

pytestmark = pytest.mark.crash


def is_odd(body: str) -> bool:
    """Odd numbers are given back until they are dead."""
    return int(body.rsplit("/", 1)[1]) % 2 == 1


class Load:
    """Three queues with senders and receivers: a standard one, a FIFO, one with dead letters."""

    def __init__(self, port: int) -> None:
        lease = {"VisibilityTimeout": f"{VISIBILITY_S}"}
        with JsonClient(port) as client:
            plain = client.made("plain", **lease)
            fifo = client.made("ordered.fifo", FifoQueue="true", **lease)
            dead = client.made("dead", **lease)
            arn = client.attribute(dead, "QueueArn")
            policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
            risky = client.made("risky", RedrivePolicy=policy, **lease)
        self.history = History()
        self.dead_letters = {risky: dead}
        self.plain, self.fifo, self.risky, self.dead = (Ledger(self.history) for _ in range(4))
        self.plain_senders = [Sender(port, plain, f"p{n}", self.history) for n in range(2)]
        self.fifo_senders = [FifoSender(port, fifo, f"f{n}", self.history) for n in range(2)]
        self.risky_senders = [Sender(port, risky, "r", self.history)]
        self.receivers: list[Receiver] = [
            *(Receiver(port, plain, f"plain-{n}", self.plain) for n in range(3)),
            *(FifoReceiver(port, fifo, f"fifo-{n}", self.fifo) for n in range(2)),
            *(Receiver(port, risky, f"risky-{n}", self.risky, is_odd) for n in range(2)),
            Receiver(port, dead, "dead", self.dead),
        ]

    @property
    def senders(self) -> Sequence[Sender | FifoSender]:
        """Return all senders."""
        return [*self.plain_senders, *self.fifo_senders, *self.risky_senders]

    @property
    def workers(self) -> Sequence[Worker]:
        """All threads."""
        return [*self.receivers, *self.senders]

    def acknowledged(self) -> int:
        """Return how many sends and deletes were acknowledged."""
        failures = [failure for worker in self.workers for failure in worker.failures]
        assert failures == []
        ledgers = (self.plain, self.fifo, self.risky, self.dead)
        sent = sum(len(sender.acknowledged) for sender in self.senders)
        return sent + sum(len(ledger.deleted) for ledger in ledgers)

    def has_met_kills(self) -> bool:
        """Return whether a kill met a message in flight, and one a send to the FIFO queue."""
        return bool(self.plain.redelivered) and any(one.resent for one in self.fifo_senders)

    def missing(self) -> set[str]:
        """Return what was acknowledged and has not come where it must."""
        plain, fifo, risky = (
            set().union(*(set(sender.acknowledged) for sender in senders))
            for senders in (self.plain_senders, self.fifo_senders, self.risky_senders)
        )
        odd = {body for body in risky if is_odd(body)}
        # An even one whose delete was never answered may be a dead letter, or gone.
        even = {body for body in risky - odd if body not in self.risky.tried}
        return {
            *plain.difference(self.plain.came),
            *fifo.difference(self.fifo.came),
            *odd.difference(self.dead.came),
            *even.difference(self.dead.came),
        }


@how_often(12, 100)
@pytest.mark.parametrize("flush", ["group", "never"])
def test_what_was_acknowledged_is_so_after_kills(
    tmp_path: Path, flush: str, kills: int
) -> None:
    with SqsGateway(tmp_path / "data", small_segments(flush, 1 << 20)) as gateway:
        load = Load(gateway.sqs_port)
        for worker in load.workers:
            worker.start()
        for _ in moments(
            kills,
            load.acknowledged,
            apart_max=ACKS_BETWEEN_KILLS_MAX,
            is_met=load.has_met_kills,
        ):
            gateway.kill()
            gateway.restart()
        for sender in load.senders:
            sender.finish()
        try:
            wait_until(
                partial(_has_all, load), within_s=DRAIN_S_MAX, what="all that was sent comes"
            )
        except TimeoutError:
            missing = sorted(load.missing())
            pytest.fail(f"{len(missing)} messages are missing: {missing[:10]}")
        for receiver in load.receivers:
            receiver.finish()

    check_queues(load.history, dead_letters=load.dead_letters).raise_problems()
    assert load.has_met_kills(), "no kill met a message in flight, or none met a send"


def _has_all(load: Load) -> bool:
    load.acknowledged()  # raises what a thread has found
    return not load.missing()
