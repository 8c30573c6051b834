"""Load of Kafka, MQTT and SQS clients on two nodes between which shards move, with its history."""

import asyncio
import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.support.history import History, Operation, Outcome
from tests.support.mqtt_moving import MovingPublisher, MovingSubscriber, client_beside
from tests.support.sqs_raw import Gone, JsonClient, Refused
from tests.support.two_nodes import HOSTS, TwoNodes
from tests.support.waiting import wait_until

PARTITIONS: Final = 8
MQTT_TOPICS: Final = 8
MQTT_SUBSCRIBERS: Final = ("subscriber-0", "subscriber-1")
FIFO_GROUPS: Final = 6
BACKLOG_MAX: Final = 500  # messages of queues that are sent and have not come
QUEUES: Final = ("work", "work.fifo")
REJECTED: Final = "rejected"
DEAD: Final = "dead"
DECLARED: Final = f"""
[[topics]]
name = "orders"
partitions = {PARTITIONS}
[[topics]]
name = "mqtt"
partitions = {PARTITIONS}
[[queues]]
name = "work"
[[queues]]
name = "work.fifo"
order = "key"
[[queues]]
name = "{REJECTED}"
attempts_max = 1
dead_letter_topic = "{DEAD}"
"""
_ENDS_S_MAX: Final = 120.0
_LOOK_AGAIN_S: Final = 0.02
_DELAYED_EVERY: Final = 4  # messages of the queue without an order


class LostAnswer(Exception):
    """A node was killed before it answered."""


class Abandoned(Exception):
    """The test has failed; the clients are to end as they are."""


class MovingLoad:
    """Clients in threads, inside ``with``; its end lets the readers take the rest.

    When the test fails inside it the clients are ended as they are, so that none outlives the test.

    With ``are_killed`` nodes may be killed: then there is no MQTT, whose sessions stay with a node,
    and a request without an answer is repeated where that is no new message.
    """

    def __init__(self, nodes: TwoNodes, *, are_killed: bool = False) -> None:
        self._are_killed = are_killed
        self.kafka, self.mqtt, self.sqs = History(), History(), History()
        self.histories = (
            [self.kafka, self.sqs] if are_killed else [self.kafka, self.mqtt, self.sqs]
        )
        self.dead = History()
        """Messages of a queue that rejects all of them, and their dead letters."""
        self._nodes = nodes
        self._is_stopping = threading.Event()
        self._are_sent = threading.Event()
        self._is_abandoned = threading.Event()
        self._kafka_loop: asyncio.AbstractEventLoop | None = None
        self._failures: list[BaseException] = []
        self._sqs_connections: list[JsonClient] = []
        senders = [
            self._run_kafka,
            *(lambda queue=queue: self._send(self.sqs, queue) for queue in QUEUES),
            lambda: self._send(self.dead, REJECTED),
        ]
        self._publishers: list[MovingPublisher] = []
        self._subscribers: list[MovingSubscriber] = []
        if not are_killed:
            self._publishers, self._subscribers = self._mqtt_clients()
        readers = [
            *(lambda queue=queue: self._receive(self.sqs, queue) for queue in QUEUES),
            self._reject,
            lambda: self._receive(self.dead, DEAD),
        ]
        self._senders = [self._thread(work) for work in senders]
        self._readers = [self._thread(work) for work in readers]

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the test reports it
                self._failures.append(error)

        return threading.Thread(target=run, name="load")

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(self, failure: type[BaseException] | None, *_exc: object) -> None:
        if failure is not None:
            self._abandon()
            return
        try:
            self._finish()
        except BaseException:
            self._abandon()
            raise

    def _start(self) -> None:
        for subscriber in self._subscribers:
            subscriber.start()
        wait_until(
            lambda: all(one.is_subscribed for one in self._subscribers),
            within_s=_ENDS_S_MAX,
            what="the subscribers have subscribed",
        )
        for publisher in self._publishers:
            publisher.start()
        for thread in (*self._senders, *self._readers):
            thread.start()

    def check(self) -> None:
        """Raise what a client has raised."""
        if self._failures:
            raise self._failures[0]
        for client in (*self._publishers, *self._subscribers):
            assert client.failures == [], client.failures

    def _abandon(self) -> None:
        """End all clients, wherever they are."""
        for event in (self._is_abandoned, self._is_stopping, self._are_sent):
            event.set()
        for client in (*self._publishers, *self._subscribers):
            client.abandon()
        for thread in (*self._senders, *self._readers):
            while thread.is_alive():  # what ends a producer may wait as well: cancel that too
                if self._kafka_loop is not None:
                    with suppress(RuntimeError):  # it has ended meanwhile
                        self._kafka_loop.call_soon_threadsafe(self._cancel_kafka)
                thread.join(_LOOK_AGAIN_S)
        for connection in self._sqs_connections:
            connection.close()

    def _cancel_kafka(self) -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    def _finish(self) -> None:
        """End the senders, let the readers take the rest, and end them."""
        self._nodes.move_all(to=0)
        self._finish_mqtt()
        self._is_stopping.set()
        self._join(self._senders)
        self._are_sent.set()
        self._join(self._readers)
        for client in self._sqs_connections:
            client.close()
        self.check()

    def _join(self, threads: list[threading.Thread]) -> None:
        """Wait until they have ended. Errors: what one of them has raised."""
        for thread in threads:
            while thread.is_alive():
                self.check()
                thread.join(_LOOK_AGAIN_S)

    def _has_taken_all(self, history: History, where: str = "", client: str = "") -> bool:
        """Whether all came; with ``where``, all of it there, which for dead letters is all.

        ``client``: to this client.
        """
        came = {
            one.value
            for one in list(history.deliveries)
            if where in {"", one.where} and client in {"", one.client}
        }
        return all(
            send.value in came
            for send in list(history.sends.values())
            if send.outcome is Outcome.OK and where in {"", send.where, DEAD}
        )

    # --- Kafka

    def _run_kafka(self) -> None:
        asyncio.run(self._produce_and_consume())

    async def _produce_and_consume(self) -> None:
        self._kafka_loop = asyncio.get_running_loop()
        servers = [f"{host}:{self._nodes.ports['kafka']}" for host in HOSTS]
        common: dict[str, Any] = {
            "bootstrap_servers": servers,
            "retry_backoff_ms": 5,
            "metadata_max_age_ms": 1_000,
        }
        async with (
            AIOKafkaProducer(**common, enable_idempotence=True, linger_ms=0) as producer,
            AIOKafkaConsumer(
                **common,
                group_id="readers",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            ) as consumer,
        ):
            consumer.assign([TopicPartition("orders", n) for n in range(PARTITIONS)])
            consuming = asyncio.create_task(self._consume(consumer))
            await asyncio.gather(*(self._produce(producer, n) for n in range(PARTITIONS)))
            await consuming

    async def _produce(self, producer: AIOKafkaProducer, number: int) -> None:
        """Send to one partition, in order; the producer sends again what was refused."""
        where = f"orders-{number}"
        for at in itertools.count():
            if self._is_stopping.is_set():
                return
            value = f"{where}/{at}"
            send = self.kafka.send(where, where, value)
            found = await producer.send_and_wait("orders", value.encode(), partition=number)
            self.kafka.end(send, Outcome.OK, offset=found.offset)

    async def _consume(self, consumer: AIOKafkaConsumer) -> None:
        """Read all partitions and commit; a commit is refused while its group moves."""
        while not (self._is_stopping.is_set() and self._has_taken_all(self.kafka)):
            found = await consumer.getmany(timeout_ms=50)
            for partition, records in found.items():
                for record in records:
                    where = f"orders-{partition.partition}"
                    self.kafka.take("reader", where, record.value, offset=record.offset)
            if found:
                await self._commit(consumer)
        ends = {one: await consumer.position(one) for one in consumer.assignment()}
        if self._are_killed:  # the last commit may have had no answer
            await consumer.commit()
        for partition, end in ends.items():
            assert await consumer.committed(partition) == (end or None), partition

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        try:
            await consumer.commit()
        except KafkaError:
            if not self._are_killed:
                raise

    # --- MQTT

    def _mqtt_clients(self) -> tuple[list[MovingPublisher], list[MovingSubscriber]]:
        port, history = self._nodes.ports["mqtt"], self.mqtt
        publishers = [
            MovingPublisher(
                port,
                f"publisher-{index}",
                topics=tuple(f"t/{index}/{number}" for number in range(MQTT_TOPICS)),
                qos=1,
                history=history,
            )
            for index in (0, 1)
        ]
        beside = client_beside(self._nodes, "publisher", "t/beside")  # its node takes the topic
        publishers.append(
            MovingPublisher(port, beside, topics=("t/beside",), qos=1, history=history)
        )
        subscribers = [
            MovingSubscriber(port, name, filters=("t/#",), qos=1, history=history)
            for name in MQTT_SUBSCRIBERS
        ]
        return publishers, subscribers

    def _finish_mqtt(self) -> None:
        """Bring the clients to their end; all shards are on one node."""
        for publisher in self._publishers:
            publisher.finish()
        for name in MQTT_SUBSCRIBERS:
            wait_until(
                lambda name=name: self._has_taken_all(self.mqtt, client=name),  # type: ignore[misc]
                within_s=_ENDS_S_MAX,
                what=f"{name} has all messages",
            )
        for subscriber in self._subscribers:
            subscriber.finish()

    # --- SQS

    def _send(self, history: History, queue: str) -> None:
        clients = self._sqs_clients()
        for at in itertools.count():
            if self._is_stopping.is_set():
                return
            while len(history.sends) - len(history.deliveries) > BACKLOG_MAX:
                if self._is_stopping.wait(_LOOK_AGAIN_S):
                    return
            value = f"{queue}/{at}"
            group = f"g{at % FIFO_GROUPS}" if queue.endswith(".fifo") else ""
            params: dict[str, Any] = {}
            if group:
                params = {"MessageGroupId": group, "MessageDeduplicationId": value}
            elif at % _DELAYED_EVERY == 0:
                params = {"DelaySeconds": 1}
            send = history.send(f"sender-{queue}", queue, value, group=group)
            params |= {"QueueUrl": queue, "MessageBody": value}
            try:
                self._call(clients, "SendMessage", is_repeated=bool(group), **params)
            except LostAnswer:
                continue  # it is sent, or not
            history.end(send, Outcome.OK)

    def _messages(self, clients: "itertools.cycle[JsonClient]", queue: str) -> Any:
        params: dict[str, Any] = {"MaxNumberOfMessages": 10, "WaitTimeSeconds": 1}
        found = self._call(clients, "ReceiveMessage", QueueUrl=queue, **params)
        return found.get("Messages", ())

    def _reject(self) -> None:
        """Give back what comes, so that it becomes a dead letter."""
        clients = self._sqs_clients()
        while not (self._are_sent.is_set() and self._has_taken_all(self.dead, DEAD)):
            for message in self._messages(clients, REJECTED):
                self._call(
                    clients,
                    "ChangeMessageVisibility",
                    QueueUrl=REJECTED,
                    is_done_by="InvalidParameterValueException",  # it is a dead letter already
                    ReceiptHandle=message["ReceiptHandle"],
                    VisibilityTimeout=0,
                )

    def _receive(self, history: History, queue: str) -> None:
        clients = self._sqs_clients()
        while not (self._are_sent.is_set() and self._has_taken_all(history, queue)):
            asked = history.now()
            for message in self._messages(clients, queue):
                value = message["Body"]
                history.take(
                    f"receiver-{queue}",
                    queue,
                    value,
                    identity=message["MessageId"],
                    asked=asked,
                )
                delete: Operation = history.delete(f"receiver-{queue}", queue, value)
                self._call(
                    clients,
                    "DeleteMessage",
                    QueueUrl=queue,
                    ReceiptHandle=message["ReceiptHandle"],
                )
                history.end(delete, Outcome.OK)

    def _sqs_clients(self) -> "itertools.cycle[JsonClient]":
        port = self._nodes.ports["sqs"]
        clients = [JsonClient(port, host=host) for host in HOSTS]
        self._sqs_connections += clients
        return itertools.cycle(clients)

    def _call(
        self,
        clients: "itertools.cycle[JsonClient]",
        action: str,
        *,
        is_repeated: bool = True,
        is_done_by: str = "",
        **params: Any,
    ) -> dict[str, Any]:
        """Ask the nodes in turn until one serves the queue.

        ``is_done_by``: the error of a repeated request whose lost answer was a success. Error:
        ``LostAnswer``, unless the request is repeated then.
        """
        answers: list[dict[str, Any]] = []
        is_lost = False

        def is_served() -> bool:
            nonlocal is_lost
            if self._is_abandoned.is_set():
                raise Abandoned
            try:
                answers.append(next(clients).call(action, **params))
            except Refused as error:
                if is_lost and error.code == is_done_by:
                    answers.append({})
                elif error.status != 503:
                    raise
            except Gone as error:
                if not self._are_killed:
                    raise AssertionError(action) from error
                is_lost = is_lost or "ConnectionRefused" not in str(error)
                if not is_repeated and is_lost:
                    raise LostAnswer(action) from error
            return bool(answers)

        wait_until(is_served, within_s=_ENDS_S_MAX, what=f"{action} is served", every_s=0.001)
        return answers[0]
