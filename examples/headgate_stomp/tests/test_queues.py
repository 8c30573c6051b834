"""Queues, exchanges, transactions and their errors, over a socket."""

import pytest

from gateway.testing.adapter_client import Credentials, Hangup, NotAccepted
from gateway.testing.gateway_process import GatewayProcess
from tests.conftest import Connect
from tests.stomp_client import StompClient, frame

INDIVIDUAL = {"ack": "client-individual", "prefetch_count": 100}
JOBS = "/queue/jobs"


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [("1.0,1.1,1.2", "1.2"), ("1.1,1.0", "1.1"), ("", "1.0"), ("2.1,1.0", "1.0")],
)
def test_the_highest_common_version_is_agreed_on(
    shared_gateway: GatewayProcess, offered: str, agreed: str
) -> None:
    with StompClient(shared_gateway.ports["stomp"]) as client:
        asked = {"accept_version": offered} if offered else {}
        client.send_bytes(frame("STOMP", **asked))
        assert client.answer("CONNECTED").headers["version"] == agreed


def test_a_client_of_no_common_version_is_told_ours(shared_gateway: GatewayProcess) -> None:
    with StompClient(shared_gateway.ports["stomp"]) as client:
        client.send_bytes(frame("CONNECT", accept_version="2.0"))
        with pytest.raises(NotAccepted, match=r"Version mismatch: .* 1\.0,1\.1,1\.2"):
            client.read_frame()
        with pytest.raises(Hangup):
            client.read_frame()


def test_a_message_comes_with_its_headers_and_any_bytes(connect: Connect, work: str) -> None:
    client = connect()
    body = bytes(range(256))
    client.ask(
        "SEND",
        body,
        destination=work,
        content_length=len(body),
        content_type="text/x",
        correlation_id="c1",
        priority=4,
        key="k",
        **{"odd\\cname": "a\\nb\\\\c", "amqp.exchange": "mine", "amqp_message_id": "m1"},
    )
    client.ask("SUBSCRIBE", id="s 1", destination=work)
    message = client.answer("MESSAGE")
    assert message.body == body
    expected = {
        "subscription": "s 1",
        "destination": work,
        "redelivered": "false",
        "content-type": "text/x",
        "correlation-id": "c1",
        "priority": "4",
        "key": "k",
        "odd\\cname": "a\\nb\\\\c",
        "amqp.exchange": "mine",
        "amqp-message-id": "m1",
    }
    assert {name: message.headers[name] for name in expected} == expected
    assert "ack" not in message.headers


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_older_clients_acknowledge_by_message_id(
    connect: Connect, work: str, version: str
) -> None:
    client = connect(version)
    client.ask("SEND", b"a", destination=work)
    client.ask("SUBSCRIBE", id=1, destination=work, ack="client")
    headers = client.answer("MESSAGE").headers
    assert "ack" not in headers
    client.ask("ACK", subscription=1, message_id=headers["message-id"])
    client.close()
    other = connect()
    other.ask("SEND", b"b", destination=work)
    other.ask("SUBSCRIBE", id=1, destination=work)
    assert other.bodies(1) == [b"b"]


def test_an_ack_of_mode_client_stands_for_all_before_it(connect: Connect, work: str) -> None:
    client = connect()
    client.ask("SUBSCRIBE", id=1, destination=work, ack="client", prefetch_count=3)
    for body in (b"a", b"b", b"c", b"d"):
        client.send_bytes(frame("SEND", body, destination=work))
    first, second, third = client.messages(3)
    client.send_bytes(frame("ACK", id=second.headers["ack"]))
    fourth = client.answer("MESSAGE")
    assert (third.body, fourth.body) == (b"c", b"d")
    with pytest.raises(NotAccepted, match="Message not in flight"):
        client.ask("ACK", id=first.headers["ack"])


def test_what_is_rejected_goes_to_the_dead_letters(connect: Connect) -> None:
    client = connect()
    client.ask("SUBSCRIBE", id=1, destination=JOBS, **INDIVIDUAL)
    client.ask("SUBSCRIBE", id=2, destination="/queue/dead")
    client.send_bytes(frame("SEND", b"bad", destination=JOBS))
    client.ask("NACK", id=client.answer("MESSAGE").headers["ack"], requeue="false")
    dead = client.answer("MESSAGE")
    assert (dead.body, dead.headers["subscription"]) == (b"bad", "2")
    assert dead.headers["dlq.source.topic"] == "jobs"


def test_what_is_returned_too_often_goes_to_the_dead_letters(connect: Connect) -> None:
    client = connect()
    client.ask("SUBSCRIBE", id=1, destination=JOBS, **INDIVIDUAL)
    client.ask("SUBSCRIBE", id=2, destination="/queue/dead")
    client.send_bytes(frame("SEND", b"bad", destination=JOBS))
    for is_redelivered in ("false", "true", "true"):
        message = client.answer("MESSAGE")
        assert message.headers["subscription"] == "1"
        assert message.headers["redelivered"] == is_redelivered
        client.send_bytes(frame("NACK", id=message.headers["ack"]))
    assert client.answer("MESSAGE").headers["subscription"] == "2"


def test_a_transaction_is_kept_as_a_whole_or_not_at_all(connect: Connect, work: str) -> None:
    client, reader = connect(), connect()
    reader.ask("SUBSCRIBE", id=1, destination="/queue/out")
    client.ask("SEND", b"in", destination=work)
    client.ask("SUBSCRIBE", id=1, destination=work, **INDIVIDUAL)
    ack = client.answer("MESSAGE").headers["ack"]
    for name, end in (("one", "ABORT"), ("two", "COMMIT")):
        client.ask("BEGIN", transaction=name)
        for body in (b"1", b"2"):
            client.ask("SEND", name.encode() + body, destination="/queue/out", transaction=name)
        client.ask("ACK", id=ack, transaction=name)
        client.ask(end, transaction=name)
    assert reader.bodies(2) == [b"two1", b"two2"]
    with pytest.raises(NotAccepted, match="Message not in flight"):
        client.ask("ACK", id=ack)


def test_a_transaction_that_is_left_open_gives_its_messages_back(
    connect: Connect, work: str
) -> None:
    client, other = connect(), connect()
    client.ask("SEND", b"in", destination=work)
    client.ask("SUBSCRIBE", id=1, destination=work, **INDIVIDUAL)
    ack = client.answer("MESSAGE").headers["ack"]
    client.ask("BEGIN", transaction="t")
    client.ask("ACK", id=ack, transaction="t")
    client.close()
    other.ask("SUBSCRIBE", id=1, destination=work)
    assert other.answer("MESSAGE").headers["redelivered"] == "true"


@pytest.mark.parametrize(
    ("frames", "summary"),
    [
        ([frame("SEND", b"x", destination="/nowhere/a")], "Unknown destination"),
        ([frame("SEND", b"x")], "Missing destination"),
        ([frame("SEND", b"x", destination="/queue/a b")], "Invalid destination"),
        ([frame("SEND", b"x", destination="/amq/queue/absent")], "not_found"),
        ([frame("SEND", b"x", destination="/exchange/absent/k")], "not_found"),
        ([frame("SEND", b"x", destination="/topic/__stomp_positions")], "precondition_failed"),
        ([frame("SUBSCRIBE", id=1, destination="/topic/__queues")], "precondition_failed"),
        ([frame("SEND", b"x", destination=JOBS, transaction="t")], "Bad transaction"),
        ([frame("SUBSCRIBE", destination=JOBS, id=1, ack="all")], "Invalid request"),
        ([frame("SUBSCRIBE", destination=JOBS, id=1, prefetch_count="x")], "Invalid request"),
        ([frame("SUBSCRIBE", destination=JOBS, id=1)] * 2, "Duplicated subscription"),
        (
            [frame("SUBSCRIBE", destination=JOBS, id=n) for n in range(4)],
            "Resource limit: subscriptions_max is 3",
        ),
        ([frame("BEGIN", transaction=n) for n in range(3)], "transactions_max is 2"),
        (
            [
                frame("BEGIN", transaction="t"),
                *[frame("SEND", b"x" * 900, destination=JOBS, transaction="t")] * 3,
            ],
            "transaction_bytes_max is 2000",
        ),
        ([frame("UNSUBSCRIBE", id=1)], "Subscription not found"),
        ([frame("ACK", id="1-1")], "Message not in flight"),
        ([frame("ACK", id="x")], "Invalid request"),
        ([frame("ACK", b"body", id="x")], "Invalid frame"),
        ([frame("CONNECT")], "Illegal command"),
        ([frame("GET / HTTP/1.1")], "Invalid frame"),
        ([frame("SEND", destination=JOBS, bad="\\t")], "Invalid frame"),
    ],
)
def test_a_fault_is_said_and_ends_the_connection(
    connect: Connect, frames: list[bytes], summary: str
) -> None:
    client = connect()
    client.send_bytes(b"".join(frames))
    with pytest.raises(NotAccepted, match=summary):
        client.messages(10)
    with pytest.raises(Hangup):
        client.read_frame()
    connect().ask("SEND", b"x", destination="/queue/other")


def test_what_came_before_a_fault_is_kept(connect: Connect, work: str) -> None:
    client = connect()
    client.send_bytes(
        frame("SEND", b"good", destination=work, receipt="good") + b"NONSENSE\n\n\0"
    )
    client.wait_closed()
    other = connect()
    other.ask("SUBSCRIBE", id=1, destination=work)
    assert other.bodies(1) == [b"good"]


def test_an_exchange_routes_by_key_to_its_subscribers(connect: Connect) -> None:
    euros, everything = connect(), connect()
    euros.ask("SUBSCRIBE", id=1, destination="/exchange/prices/*.eur")
    everything.ask("SUBSCRIBE", id=1, destination="/exchange/prices/%23")
    client = connect()
    for key in ("tea.usd", "tea.eur"):
        client.ask("SEND", key.encode(), destination=f"/exchange/prices/{key}")
    assert everything.bodies(2) == [b"tea.usd", b"tea.eur"]
    message = euros.answer("MESSAGE")
    assert message.body == b"tea.eur"
    assert message.headers["destination"] == "/exchange/prices/tea.eur"


def test_a_named_queue_of_an_exchange_outlives_its_subscriber(connect: Connect) -> None:
    reader, client = connect(), connect()
    named = {"id": 1, "destination": "/exchange/prices/tea", "x_queue_name": "teas"}
    reader.ask("SUBSCRIBE", **named)
    reader.close()
    client.ask("SEND", b"1", destination="/exchange/prices/tea")
    again = connect()
    again.ask("SUBSCRIBE", **named)
    assert again.bodies(1) == [b"1"]


def test_queues_of_a_session_end_with_it(gateway: GatewayProcess, connect_own: Connect) -> None:
    client = connect_own()
    client.ask("SUBSCRIBE", id=1, destination="/exchange/prices/tea")
    assert "stomp-gen-" in "\n".join(gateway.run_command("queues", "ls"))
    gateway.kill()
    gateway.restart()
    assert "stomp-gen-" not in "\n".join(gateway.run_command("queues", "ls"))
    client = connect_own()
    client.ask("SUBSCRIBE", id=1, destination="/exchange/prices/tea")
    client.ask("UNSUBSCRIBE", id=1)
    for _ in range(100):  # each is a process
        if "stomp-gen-" not in "\n".join(gateway.run_command("queues", "ls")):
            return
    raise AssertionError("the queue stays")


def test_a_request_is_answered_to_a_temporary_queue(connect: Connect) -> None:
    asking, answering = connect(), connect()
    answering.ask("SUBSCRIBE", id=1, destination="/queue/questions")
    asking.ask("SEND", b"?", destination="/queue/questions", reply_to="/temp-queue/mine")
    reply_to = answering.answer("MESSAGE").headers["reply-to"]
    assert reply_to.startswith("/reply-queue/")
    answering.ask("SEND", b"!", destination=reply_to)
    answer = asking.answer("MESSAGE")
    assert (answer.body, answer.headers["subscription"]) == (b"!", "/temp-queue/mine")


def test_what_is_acknowledged_survives_a_kill_and_the_rest_comes_again(
    gateway: GatewayProcess, connect_own: Connect
) -> None:
    client = connect_own()
    for number in range(6):
        client.ask("SEND", b"%d" % number, destination=JOBS)
    client.ask("SUBSCRIBE", id=1, destination=JOBS, **INDIVIDUAL)
    messages = client.messages(6)
    for message in messages[:3]:
        client.ask("ACK", id=message.headers["ack"])
    client.ask("BEGIN", transaction="t")
    client.ask("SEND", b"moved", destination="/queue/moved", transaction="t")
    client.ask("ACK", id=messages[3].headers["ack"], transaction="t")
    client.ask("COMMIT", transaction="t")
    gateway.kill()
    gateway.restart()
    other = connect_own()
    other.ask("SUBSCRIBE", id=1, destination=JOBS)
    assert other.bodies(2) == [b"4", b"5"]
    other.ask("SUBSCRIBE", id=2, destination="/queue/moved")
    assert other.bodies(1) == [b"moved"]


def test_expired_messages_do_not_come(connect: Connect, work: str) -> None:
    client = connect()
    client.ask("SEND", b"old", destination=work, expiration=0)
    client.ask("SEND", b"new", destination=work, expiration=600_000)
    client.ask("SUBSCRIBE", id=1, destination=work)
    message = client.answer("MESSAGE")
    assert message.body == b"new"
    assert message.headers["expires"].isdigit()


def test_from_the_first_user_on_everybody_must_log_in(gateway: GatewayProcess) -> None:
    gateway.add_user("alice", "secret")
    with (
        StompClient(gateway.ports["stomp"]) as client,
        pytest.raises(NotAccepted, match="Bad CONNECT: CONNECT needs login"),
    ):
        client.log_in(None)
    with StompClient(gateway.ports["stomp"]) as client:
        client.log_in(Credentials("alice", "secret"))
        client.ask("SEND", b"x", destination=JOBS)
    gateway.add_user("bob", "secret")
    gateway.run_command("rules", "add", "deny", "write", "topic", "jobs", "--user", "bob")
    with StompClient(gateway.ports["stomp"]) as client:
        client.log_in(Credentials("bob", "secret"))
        with pytest.raises(NotAccepted, match="access_refused"):
            client.ask("SEND", b"x", destination=JOBS)


def test_heart_beats_are_sent_and_a_silent_client_is_dropped(
    shared_gateway: GatewayProcess,
) -> None:
    with StompClient(shared_gateway.ports["stomp"]) as client:
        client.send_bytes(frame("CONNECT", accept_version="1.2", heart_beat="1000,1000"))
        assert client.answer("CONNECTED").headers["heart-beat"] == "2000,2000"
        assert client.read_until(b"\n\n") == b"\n\n"
        client.wait_closed()


def test_a_disconnect_is_answered_when_all_before_it_is_kept(connect: Connect) -> None:
    client = connect()
    client.send_bytes(
        frame("SEND", b"x", destination="/queue/late")
        + frame("SEND", b"y", destination="/queue/late", receipt="y")
        + frame("DISCONNECT", receipt="bye")
    )
    assert client.answer("RECEIPT").headers["receipt-id"] == "y"
    assert client.answer("RECEIPT").headers["receipt-id"] == "bye"
    with pytest.raises(Hangup):
        client.read_frame()


def test_a_stop_says_so(gateway: GatewayProcess, connect_own: Connect) -> None:
    client = connect_own()
    client.ask("SUBSCRIBE", id=1, destination=JOBS)
    gateway.stop()
    with pytest.raises(NotAccepted, match="Server shutting down"):
        client.read_frame()
