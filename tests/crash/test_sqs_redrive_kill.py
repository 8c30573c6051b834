"""kill -9 while messages go to and fro between a queue and its dead letters: each is there once."""

import json
import math
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.kill_schedule import how_often, moments
from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_load import Ledger, Receiver, Worker
from tests.support.sqs_raw import Gone, JsonClient, Refused
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash

MESSAGES = 400
# A message ends for good when it was a dead letter sixteen times.
MOVES_MAX = 12
RATE_PER_S = 200  # so that kills meet a task under way
LEASE_S = 2
PROGRESS_S_MAX = 180
STATES = ("", "NotVisible", "Delayed")


class Redriver(Worker):
    """Starts a task that returns dead letters, whenever none runs."""

    def __init__(self, port: int, arn: str) -> None:
        super().__init__(port, "", "redriver")
        self.arn = arn
        self.started = 0

    def turn(self) -> None:
        """Try to start one."""
        self._ends.wait(0.2)
        if self.started == MOVES_MAX:
            return
        task = {"SourceArn": self.arn, "MaxNumberOfMessagesPerSecond": RATE_PER_S}
        try:
            self._client.call("StartMessageMoveTask", **task)
        except (Gone, Refused):  # it is down, or a task runs
            return
        self.started += 1


class Pair:
    """A queue whose messages are given back each time, and where they are dead letters then."""

    def __init__(self, port: int) -> None:
        self.port = port
        with JsonClient(port) as client:
            self.dead = client.made("dead", VisibilityTimeout=f"{LEASE_S}")
            self.dead_arn = client.attribute(self.dead, "QueueArn")
            policy = json.dumps({"deadLetterTargetArn": self.dead_arn, "maxReceiveCount": 1})
            self.url = client.made("work", VisibilityTimeout=f"{LEASE_S}", RedrivePolicy=policy)
            for start in range(0, MESSAGES, 10):
                entries = [
                    {"Id": f"{n}", "MessageBody": f"m/{n}"} for n in range(start, start + 10)
                ]
                client.call("SendMessageBatch", QueueUrl=self.url, Entries=entries)

    def count(self) -> int:
        """Return how many messages there are in both queues, in whatever state."""
        names = [f"ApproximateNumberOfMessages{state}" for state in STATES]
        with JsonClient(self.port) as client:
            return sum(
                int(client.attribute(url, name))
                for url in (self.url, self.dead)
                for name in names
            )

    def drain(self) -> Counter[str]:
        """Receive and delete until all came and nothing is there; return how often each came."""
        came: Counter[str] = Counter()
        deadline = time.monotonic() + PROGRESS_S_MAX
        with JsonClient(self.port) as client:
            # A count alone misses what a task moves between its two looks.
            while came.total() < MESSAGES or self.count():
                if time.monotonic() > deadline:
                    break
                for url in (self.url, self.dead):
                    given = {"MaxNumberOfMessages": 10, "VisibilityTimeout": 60}
                    found = client.call("ReceiveMessage", QueueUrl=url, **given)
                    for one in found.get("Messages", []):
                        came[one["Body"]] += 1
                        handle = one["ReceiptHandle"]
                        client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
        return came


@how_often(10, 100)
def test_each_message_is_there_once_after_kills(tmp_path: Path, kills: int) -> None:
    with SqsGateway(tmp_path / "data") as gateway:
        pair = Pair(gateway.sqs_port)
        ledger = Ledger()
        port = gateway.sqs_port
        givers = [
            Receiver(port, pair.url, f"giver-{n}", ledger, lambda _: True) for n in (0, 1)
        ]
        redriver = Redriver(port, pair.dead_arn)
        for worker in (*givers, redriver):
            worker.start()

        def progress() -> float:
            # Once all tasks were started there is nothing more to receive.
            return math.inf if redriver.started == MOVES_MAX else ledger.taken

        def is_met() -> bool:
            return redriver.started > 1 and ledger.taken > MESSAGES

        for _ in moments(kills, progress, apart_max=MESSAGES // 4, is_met=is_met):
            gateway.kill()
            gateway.restart()
        for worker in (*givers, redriver):
            worker.finish()

        wait_until(
            lambda: pair.count() == MESSAGES,  # not while a task moves some between two looks
            within_s=PROGRESS_S_MAX,
            what="each message is in one of the queues",
        )
        came = pair.drain()
    assert came == Counter({f"m/{n}": 1 for n in range(MESSAGES)})
    assert redriver.started > 1
    assert ledger.taken > MESSAGES, "nothing was returned"
