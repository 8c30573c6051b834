"""stomp.py, the stock client of Python, works as it does with any other broker."""

import queue
from typing import Any

import stomp

from gateway.testing.adapter_client import ANSWER_S_MAX
from gateway.testing.gateway_process import GatewayProcess


class Kept(stomp.ConnectionListener):
    """Keeps what a connection gets."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.errors: queue.Queue[str] = queue.Queue()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame.headers["message"])

    def next(self) -> Any:
        return self.messages.get(timeout=ANSWER_S_MAX)


def connected(gateway: GatewayProcess, kind: type = stomp.Connection12) -> tuple[Any, Kept]:
    connection = kind([("127.0.0.1", gateway.ports["stomp"])], heartbeats=(4_000, 4_000))
    kept = Kept()
    connection.set_listener("kept", kept)
    connection.connect("guest", "guest", wait=True)
    return connection, kept


def test_send_receive_and_acknowledge(shared_gateway: GatewayProcess, work: str) -> None:
    connection, kept = connected(shared_gateway)
    connection.subscribe(work, id="1", ack="client-individual", headers={"prefetch-count": "1"})
    connection.send(work, "wörld", content_type="text/plain", headers={"ab": "c:\nd"})
    connection.send(work, "two", receipt="two")
    first = kept.next()
    assert first.body == "wörld"
    assert first.headers["ab"] == "c:\nd"
    assert kept.receipts.get(timeout=ANSWER_S_MAX) == "two"
    connection.ack(first.headers["ack"])
    second = kept.next()
    connection.nack(second.headers["ack"])
    again = kept.next()
    assert (again.body, again.headers["redelivered"]) == ("two", "true")
    connection.unsubscribe("1")
    connection.disconnect()


def test_transactions_topics_and_errors(shared_gateway: GatewayProcess) -> None:
    connection, kept = connected(shared_gateway)
    connection.subscribe("/topic/news", id="1", ack="auto")
    for end in (connection.abort, connection.commit):
        name = connection.begin()
        connection.send("/topic/news", end.__name__, transaction=name)
        end(name)
    assert kept.next().body == "commit"
    connection.send("/nowhere", "x")
    assert kept.errors.get(timeout=ANSWER_S_MAX) == "Unknown destination"


def test_version_1_1(shared_gateway: GatewayProcess, work: str) -> None:
    connection, kept = connected(shared_gateway, stomp.Connection11)
    connection.subscribe(work, id="1", ack="client")
    connection.send(work, "one")
    connection.ack(kept.next().headers["message-id"], "1")
    connection.disconnect()
