"""Load on SQS queues by threads that check the protocol's guarantees through kills.

Senders number their messages and remember which sends were acknowledged; receivers remember what
came and which deletes were acknowledged, and find out at once when something comes back.
"""

import abc
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from tests.support.history import History, Outcome
from tests.support.sqs_raw import Gone, JsonClient, Refused, Result

VISIBILITY_S: Final = 8
# A delete that is answered later than this after its receive was asked for may have met a lease
# that had ended: it began at some time after that.
PROMISE_S_MAX: Final = VISIBILITY_S - 1.0
BATCH: Final = 10
_PAUSE_S: Final = 0.02
_BUSY: Final = frozenset({"ServiceUnavailable", "RequestThrottled"})


class Worker(abc.ABC):
    """A thread with a connection; an exception ends it and is added to ``failures``."""

    def __init__(self, port: int, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self.failures: list[BaseException] = []
        self._client = JsonClient(port)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """Wait for the end of its current step, and raise its failures."""
        self._ends.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        assert self.failures == [], f"{self.name}: {self.failures}"

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self.turn()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failures.append(error)
        finally:
            self._client.close()

    @abc.abstractmethod
    def turn(self) -> None:
        """Do one step."""

    def attempt(self, action: str, **params: Any) -> Result | None:
        """Do a request once; return None when its effect is unknown."""
        try:
            return self._client.call(action, QueueUrl=self.url, **params)
        except Gone:
            self._ends.wait(_PAUSE_S)
        except Refused as error:
            if error.code not in _BUSY:
                raise
            self._ends.wait(_PAUSE_S)
        return None

    def insist(self, action: str, **params: Any) -> Result:
        """Repeat a request until it is answered, even after the end."""
        deadline = time.monotonic() + 60
        while (found := self.attempt(action, **params)) is None:
            assert time.monotonic() < deadline, f"{self.name}: no answer to {action}"
        return found


class Sender(Worker):
    """Sends numbers to a standard queue, in turn one and ten at a time."""

    def __init__(self, port: int, url: str, name: str, history: History) -> None:
        super().__init__(port, url, name)
        self.acknowledged: set[str] = set()
        self.count = 0
        self._history = history

    def _next(self) -> str:
        body = f"{self.name}/{self.count}"
        self.count += 1
        self._history.send(self.name, self.url, body)
        return body

    def _sent(self, body: str) -> None:
        self.acknowledged.add(body)
        self._history.end(self._history.find(body), Outcome.OK)

    def turn(self) -> None:
        """Send one, then ten."""
        body = self._next()
        if self.attempt("SendMessage", MessageBody=body) is not None:
            self._sent(body)
        entries = [{"Id": f"{n}", "MessageBody": self._next()} for n in range(BATCH)]
        found = self.attempt("SendMessageBatch", Entries=entries)
        for done in found["Successful"] if found else ():
            self._sent(entries[int(done["Id"])]["MessageBody"])


class FifoSender(Worker):
    """Sends numbers to groups of its own; what was not answered is sent again, by the same id."""

    GROUPS: Final = 3

    def __init__(self, port: int, url: str, name: str, history: History) -> None:
        super().__init__(port, url, name)
        self.acknowledged: set[str] = set()
        self.count = 0
        self.resent = 0
        self._history = history
        self._waits: list[dict[str, str]] = []

    def turn(self) -> None:
        """Send ten, or the ten of before."""
        if not self._waits:
            self._waits = [self._entry(n) for n in range(BATCH)]
        found = self.attempt("SendMessageBatch", Entries=self._waits)
        if found is None:
            self.resent += 1
            return
        assert not found.get("Failed"), found
        self._sent()

    def finish(self) -> None:
        """End the thread; requests without an answer are sent before."""
        super().finish()
        if self._waits:
            self.insist("SendMessageBatch", Entries=self._waits)
            self._sent()
            self._client.close()

    def _sent(self) -> None:
        for entry in self._waits:
            body = entry["MessageBody"]
            self.acknowledged.add(body)
            self._history.end(self._history.find(body), Outcome.OK)
        self._waits = []

    def _entry(self, index: int) -> dict[str, str]:
        number, group = divmod(self.count, self.GROUPS)
        self.count += 1
        body = f"{self.name}.{group}/{number}"
        group_id = f"{self.name}.{group}"
        self._history.send(self.name, self.url, body, group=group_id)
        return {
            "Id": f"{index}",
            "MessageBody": body,
            "MessageGroupId": group_id,
            "MessageDeduplicationId": body.replace("/", "-"),
        }


class Ledger:
    """Shared record of all receivers of one queue."""

    def __init__(self, history: History | None = None) -> None:
        self.history = History() if history is None else history
        self.lock = threading.Lock()
        self.came: dict[str, str] = {}  # body: message id
        self.deleted: set[str] = set()  # acknowledged, in time
        self.tried: set[str] = set()  # a delete was sent
        self.redelivered = 0
        self.taken = 0

    def took(
        self, client: str, where: str, message: Result, gone_before: set[str], asked: int
    ) -> None:
        """Note a message. ``gone_before`` are the messages deleted when the receive was sent.

        ``asked`` is the history's number at that time.
        """
        body, message_id = message["Body"], message["MessageId"]
        with self.lock:
            self.history.take(client, where, body, identity=message_id, asked=asked)
            self.taken += 1
            assert body not in gone_before, f"{body} was deleted and came back"
            known = self.came.setdefault(body, message_id)
            assert known == message_id, f"{body} is there twice: {known}, {message_id}"
            self.redelivered += int(message["Attributes"]["ApproximateReceiveCount"]) > 1

    def deleted_now(self) -> set[str]:
        """Return what has been deleted up to now."""
        with self.lock:
            return set(self.deleted)


class Receiver(Worker):
    """Receives and deletes batches of up to ten; ``keeps`` selects messages to return instead."""

    def __init__(
        self,
        port: int,
        url: str,
        name: str,
        ledger: Ledger,
        keeps: Callable[[str], bool] = lambda _body: False,
    ) -> None:
        super().__init__(port, url, name)
        self.ledger = ledger
        self.keeps = keeps

    def turn(self) -> None:
        """Receive and settle."""
        gone_before, asked = self.ledger.deleted_now(), self.ledger.history.now()
        asked_s = time.monotonic()
        found = self.attempt(
            "ReceiveMessage",
            MaxNumberOfMessages=BATCH,
            WaitTimeSeconds=1,
            AttributeNames=["All"],
        )
        messages = list((found or {}).get("Messages", []))
        self.check(messages)
        for message in messages:
            self.ledger.took(self.name, self.url, message, gone_before, asked)
        kept = [message for message in messages if self.keeps(message["Body"])]
        self.give_back(kept)
        self.delete([message for message in messages if message not in kept], asked_s)

    def check(self, messages: list[Result]) -> None:
        """Check received messages before they are noted."""

    def give_back(self, messages: list[Result]) -> None:
        """Make messages visible at once. When that is not answered, their leases end."""
        if messages:
            entries = [
                {"Id": f"{n}", "ReceiptHandle": one["ReceiptHandle"], "VisibilityTimeout": 0}
                for n, one in enumerate(messages)
            ]
            self.attempt("ChangeMessageVisibilityBatch", Entries=entries)

    def delete(self, messages: list[Result], asked_s: float) -> None:
        """Delete messages and note the acknowledged ones."""
        if not messages:
            return
        entries = [
            {"Id": f"{n}", "ReceiptHandle": one["ReceiptHandle"]}
            for n, one in enumerate(messages)
        ]
        with self.ledger.lock:
            self.ledger.tried.update(message["Body"] for message in messages)
        deletes = [
            self.ledger.history.delete(self.name, self.url, message["Body"])
            for message in messages
        ]
        found = self.attempt("DeleteMessageBatch", Entries=entries)
        if found is None or time.monotonic() - asked_s > PROMISE_S_MAX:
            return
        with self.ledger.lock:
            for done in found.get("Successful", []):
                self.ledger.deleted.add(messages[int(done["Id"])]["Body"])
                self.ledger.history.end(deletes[int(done["Id"])], Outcome.OK)


class FifoReceiver(Receiver):
    """Also checks that each group comes in order, without gaps."""

    def check(self, messages: list[Result]) -> None:
        """Check that earlier messages of each group have come before."""
        with self.ledger.lock:
            seen = set(self.ledger.came)
            for message in messages:
                group, number = message["Body"].rsplit("/", 1)
                before = f"{group}/{int(number) - 1}"
                assert number == "0" or before in seen, f"{message['Body']} before {before}"
                seen.add(message["Body"])
