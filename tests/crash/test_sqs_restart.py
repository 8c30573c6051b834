"""Clients that go while they wait, and a node that is stopped or killed: what stays as it was."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_raw import Gone, JsonClient, Result
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash

LEASE_S = 6
LONG_POLL_S = 20
SEEN_S_MAX = 90
CONNECTIONS = "headgate_connections"
STATES = ("", "NotVisible", "Delayed")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[SqsGateway]:
    with SqsGateway(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(gateway: SqsGateway) -> Iterator[JsonClient]:
    with JsonClient(gateway.sqs_port) as opened:
        yield opened


def receive(client: JsonClient, url: str, **more: object) -> list[Result]:
    given = {"MaxNumberOfMessages": 10, "AttributeNames": ["All"], **more}
    return list(client.call("ReceiveMessage", QueueUrl=url, **given).get("Messages", []))


def send(client: JsonClient, url: str, body: str, **more: object) -> None:
    client.call("SendMessage", QueueUrl=url, MessageBody=body, **more)


def counts(client: JsonClient, url: str) -> list[int]:
    names = [f"ApproximateNumberOfMessages{state}" for state in STATES]
    found = client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
    return [int(found["Attributes"][name]) for name in names]


def long_poll(port: int, url: str) -> socket.socket:
    """Return a connection on which a receive waits."""
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": LONG_POLL_S}).encode()
    head = (
        "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
        f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", port), SEEN_S_MAX)
    connection.sendall(head.encode() + body)
    return connection


def test_a_receiver_that_went_while_it_waited_takes_nothing(
    gateway: SqsGateway, client: JsonClient
) -> None:
    url = client.made("q")
    before = gateway.metric(CONNECTIONS)
    waiting = [long_poll(gateway.sqs_port, url) for _ in range(20)]
    counts(client, url)
    for connection in waiting:
        connection.close()
    wait_until(
        lambda: gateway.metric(CONNECTIONS) == before, within_s=SEEN_S_MAX, what="they are gone"
    )
    send(client, url, "x")

    assert [one["Body"] for one in receive(client, url, WaitTimeSeconds=2)] == ["x"]
    assert counts(client, url) == [0, 1, 0]


def test_waiting_receivers_are_served_in_their_order(
    gateway: SqsGateway, client: JsonClient
) -> None:
    url = client.made("q")
    waiting = []
    for _ in range(5):
        waiting.append(long_poll(gateway.sqs_port, url))
        for _ in range(3):
            counts(client, url)  # it is there before the next
    for n in range(5):
        send(client, url, f"body-{n}")

    for n, connection in enumerate(waiting):
        with connection:
            assert f"body-{n}".encode() in connection.recv(1 << 16)


def test_a_stop_does_not_wait_for_long_polls(gateway: SqsGateway, client: JsonClient) -> None:
    url = client.made("q")
    began_s = time.monotonic()
    waiting = long_poll(gateway.sqs_port, url)
    counts(client, url)
    client.close()
    gateway.stop()
    took_s = time.monotonic() - began_s

    with waiting:
        came = waiting.recv(1 << 16)
    assert took_s < LONG_POLL_S
    assert came == b"" or came.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 ")), came
    gateway.start()


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_restart_keeps_what_each_message_was(
    gateway: SqsGateway,
    client: JsonClient,
    *,
    is_killed: bool,
) -> None:
    """Ready, in flight until its lease ends, delayed, deleted; the handle goes on to work."""
    url = client.made("q", VisibilityTimeout=f"{LEASE_S}")
    for body in ("deleted", "held", "kept by its handle"):
        send(client, url, body)
    taken = {one["Body"]: one["ReceiptHandle"] for one in receive(client, url)}
    assert len(taken) == 3
    client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=taken["deleted"])
    send(client, url, "ready")
    send(client, url, "delayed", DelaySeconds=LEASE_S)
    client.close()
    if is_killed:
        gateway.kill()
    else:
        gateway.stop()
    gateway.start()

    # A start may take longer than a lease: then what it held is ready as well.
    came = [
        one["Body"] for one in receive(client, url, VisibilityTimeout=60, WaitTimeSeconds=5)
    ]
    assert "ready" in came
    assert "deleted" not in came
    if "kept by its handle" not in came:
        handle = taken["kept by its handle"]
        client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
    seen = set(came)
    wanted = {"ready", "held", "delayed"} | (seen & {"kept by its handle"})

    def all_came() -> bool:
        for one in receive(client, url, VisibilityTimeout=60, WaitTimeSeconds=1):
            if one["Body"] == "held":
                assert one["Attributes"]["ApproximateReceiveCount"] == "2"
            seen.add(one["Body"])
        return seen >= wanted

    wait_until(all_came, within_s=SEEN_S_MAX, what=f"all comes: {wanted}")
    assert seen == wanted


def test_a_fifo_queue_knows_ids_and_order_after_a_kill(
    gateway: SqsGateway, client: JsonClient
) -> None:
    url = client.made("q.fifo", FifoQueue="true", VisibilityTimeout=f"{LEASE_S}")

    def put(body: str, dedup_id: str) -> Result:
        given = {"MessageGroupId": "g", "MessageDeduplicationId": dedup_id}
        return client.call("SendMessage", QueueUrl=url, MessageBody=body, **given)

    first = put("0", "a")
    put("1", "b")
    [zero] = receive(client, url, MaxNumberOfMessages=1)
    client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=zero["ReceiptHandle"])
    client.close()
    gateway.kill()
    gateway.restart()

    again = put("0 again", "a")
    assert again["MessageId"] == first["MessageId"]
    assert again["SequenceNumber"] == first["SequenceNumber"]
    put("2", "c")
    came = receive(client, url, WaitTimeSeconds=5)
    assert [one["Body"] for one in came] == ["1", "2"]


def test_a_kill_while_receivers_wait_ends_their_connections(
    gateway: SqsGateway, client: JsonClient
) -> None:
    url = client.made("q")
    failures: list[Exception] = []

    def wait() -> None:
        with JsonClient(gateway.sqs_port) as waiter:
            try:
                receive(waiter, url, WaitTimeSeconds=LONG_POLL_S)
            except Gone as error:
                failures.append(error)

    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    counts(client, url)
    client.close()
    gateway.kill()
    for thread in threads:
        thread.join(SEEN_S_MAX)
    assert len(failures) == 5
    gateway.restart()
    send(client, url, "x")
    assert [one["Body"] for one in receive(client, url)] == ["x"]


@pytest.mark.parametrize("kind", ["standard", "fifo"])
@pytest.mark.parametrize("flush", ["group", "never"])
def test_what_a_receiver_has_is_his_after_a_kill(tmp_path: Path, flush: str, kind: str) -> None:
    """Nothing is answered after a receive by a node whose log has not got that."""
    is_fifo = kind == "fifo"
    suffix, more = (".fifo", {"FifoQueue": "true"}) if is_fifo else ("", {})
    with SqsGateway(tmp_path / "data", {"storage.flush": flush}) as gateway:
        with JsonClient(gateway.sqs_port) as client:
            other = client.made("other")
            url = client.made(f"q{suffix}", VisibilityTimeout="3600", **more)
            for n in range(4):
                ids = {"MessageGroupId": "g", "MessageDeduplicationId": f"{n}"}
                send(client, url, f"{n}", **(ids if is_fifo else {}))
            given = {"QueueUrl": url, "MaxNumberOfMessages": 2}  # no attributes: the plain way
            taken = client.call("ReceiveMessage", **given)["Messages"]
            send(client, other, "later")
        gateway.kill()
        gateway.start()
        with JsonClient(gateway.sqs_port) as client:
            assert counts(client, url) == [2, 2, 0]
            came = receive(client, url, WaitTimeSeconds=0 if is_fifo else 5)
            assert [one["Body"] for one in came] == ([] if is_fifo else ["2", "3"])
            for one in taken:
                client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
            assert counts(client, url)[1] == len(came)
