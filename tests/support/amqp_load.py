"""AMQP load for tests that kill the node: publishers with confirms, consumers that acknowledge."""

import threading
from typing import Final

from adapters.amqp.v091.fields import EMPTY
from adapters.amqp.v091.methods.basic import BasicAck, BasicDeliver, BasicQos, BasicQosOk
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.queue import QueueDeclare, QueueDeclareOk
from tests.adapters.amqp.conformance.methods import consume
from tests.support.amqp_raw import Closed, RawAmqp

WINDOW: Final = 20
_LOST: Final = (Closed, OSError)


class Worker(threading.Thread):
    """Thread that connects again whenever its connection is lost, until it is finished."""

    def __init__(self, port: int, queue: str) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.queue = queue
        self.is_finished = False
        self.failures: list[BaseException] = []

    def run(self) -> None:
        """See ``Thread``."""
        try:
            while not self.is_finished:
                self._connect()
        except BaseException as failure:  # noqa: BLE001 - the test raises it
            self.failures.append(failure)

    def _connect(self) -> None:
        try:
            client = RawAmqp(self.port)
        except OSError:
            return
        try:
            client.open().channel(1)
            client.ask(
                1,
                QueueDeclare(
                    0,
                    self.queue,
                    passive=False,
                    durable=True,
                    exclusive=False,
                    auto_delete=False,
                    nowait=False,
                    arguments=EMPTY,
                ),
                QueueDeclareOk,
            )
            self.work(client)
        except _LOST:
            pass
        finally:
            client.close()

    def work(self, client: RawAmqp) -> None:
        """Use one connection until it is lost."""
        raise NotImplementedError

    def finish(self) -> None:
        """End the thread."""
        self.is_finished = True
        self.join(60)


class Publisher(Worker):
    """Publishes numbered messages in windows; ``confirmed`` are those that were confirmed."""

    def __init__(self, port: int, queue: str, name: str) -> None:
        super().__init__(port, queue)
        self.publisher = name
        self.confirmed: list[bytes] = []
        self.resent = 0
        self._next = 0

    def work(self, client: RawAmqp) -> None:
        """See ``Worker``."""
        client.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
        sent = 0
        while not self.is_finished:
            window = [
                b"%s/%d" % (self.publisher.encode(), self._next + n) for n in range(WINDOW)
            ]
            self.resent += 1
            for body in window:
                client.publish(1, self.queue, body)
            sent += WINDOW
            acked = 0
            while acked < sent:
                answer = client.read()
                assert isinstance(answer, BasicAck), answer
                acked = answer.delivery_tag
            self.resent -= 1
            self.confirmed += window
            self._next += WINDOW


class Consumer(Worker):
    """Acknowledges all that it gets; ``came`` counts how often each message came."""

    def __init__(self, port: int, queue: str, came: dict[bytes, int]) -> None:
        super().__init__(port, queue)
        self.came = came
        self.redelivered = 0

    def work(self, client: RawAmqp) -> None:
        """See ``Worker``."""
        client.ask(1, BasicQos(0, 10, global_=False), BasicQosOk)
        client.send(1, consume(self.queue, "c"))
        client.read()
        client.socket.settimeout(0.2)
        while not self.is_finished:
            try:
                message = client.read_message()
            except TimeoutError:
                continue
            assert isinstance(message.method, BasicDeliver)
            self.came[message.body] = self.came.get(message.body, 0) + 1
            self.redelivered += message.method.redelivered
            client.send(1, BasicAck(message.method.delivery_tag, multiple=False))
