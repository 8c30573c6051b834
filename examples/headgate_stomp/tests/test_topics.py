"""Topics: read from now on, or from the position of a durable subscription."""

import pytest

from gateway.testing.adapter_client import NotAccepted
from gateway.testing.gateway_process import GatewayProcess
from tests.conftest import Connect
from tests.stomp_client import StompClient, frame

NEWS = "/topic/news"


def durable(name: str) -> dict[str, str]:
    return {"id": "ada", "destination": f"/topic/{name}", "durable": "true"}


DURABLE = durable("news")


def publish(client: StompClient, destination: str, *bodies: bytes) -> None:
    for body in bodies:
        client.ask("SEND", body, destination=destination)


def test_every_subscriber_gets_what_comes_from_now_on(connect: Connect, name: str) -> None:
    writer, first, second = connect(), connect(), connect()
    publish(writer, f"/topic/{name}", b"before")
    for reader in (first, second):
        reader.ask("SUBSCRIBE", id=1, destination=f"/topic/{name}")
    publish(writer, f"/topic/{name}", b"one", b"two")
    assert first.bodies(2) == second.bodies(2) == [b"one", b"two"]


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_a_topic_gives_no_more_than_the_credit(connect: Connect, name: str, mode: str) -> None:
    reader, writer = connect(), connect()
    reader.ask("SUBSCRIBE", id=1, destination=f"/topic/{name}", ack=mode, prefetch_count=2)
    for number in range(7):
        writer.send_bytes(frame("SEND", b"%d" % number, destination=f"/topic/{name}"))
    publish(writer, f"/topic/{name}", b"7")
    found = []
    for _ in range(4):
        pair = reader.messages(2)
        found += [one.body for one in pair]
        reader.ask("BEGIN", transaction="t")  # nothing more has come
        reader.ask("ABORT", transaction="t")
        for one in pair if mode == "client-individual" else pair[1:]:
            reader.send_bytes(frame("ACK", id=one.headers["ack"]))
    assert found == [b"%d" % number for number in range(8)]


def test_a_durable_subscription_goes_on_behind_what_it_has_acknowledged(
    gateway: GatewayProcess, connect_own: Connect
) -> None:
    reader, writer = connect_own(), connect_own()
    reader.ask("SUBSCRIBE", **DURABLE, ack="client-individual")
    publish(writer, NEWS, b"one", b"two", b"three")
    one, _, three = reader.messages(3)
    reader.ask("ACK", id=one.headers["ack"])
    reader.ask("NACK", id=three.headers["ack"])
    gateway.kill()
    gateway.restart()
    reader, writer = connect_own(), connect_own()
    publish(writer, NEWS, b"four")
    reader.ask("SUBSCRIBE", **DURABLE, ack="client-individual")
    found = reader.messages(3)
    assert [one.body for one in found] == [b"two", b"three", b"four"]
    for message in found:
        reader.ask("ACK", id=message.headers["ack"])
    reader.close()
    reader = connect_own()
    publish(writer, NEWS, b"five")
    reader.ask("SUBSCRIBE", **DURABLE)
    assert reader.bodies(1) == [b"five"]


def test_a_durable_subscription_of_mode_auto_gets_what_came_meanwhile(
    connect: Connect,
    name: str,
) -> None:
    reader, writer = connect(), connect()
    reader.ask("SUBSCRIBE", **durable(name))
    reader.ask("UNSUBSCRIBE", id="ada")
    publish(writer, f"/topic/{name}", b"one", b"two")
    reader.ask("SUBSCRIBE", **durable(name))
    assert reader.bodies(2) == [b"one", b"two"]


def test_a_durable_subscription_has_one_connection_at_a_time(
    connect: Connect, name: str
) -> None:
    first, second = connect(), connect()
    first.ask("SUBSCRIBE", **durable(name))
    with pytest.raises(NotAccepted, match="Subscription in use"):
        second.ask("SUBSCRIBE", **durable(name))


def test_positions_have_a_bound_and_can_be_removed(connect_own: Connect) -> None:
    client, writer = connect_own(), connect_own()
    for name in ("ada", "bob"):
        client.ask("SUBSCRIBE", **{**DURABLE, "id": name})
    with pytest.raises(NotAccepted, match="positions_max is 2"):
        writer.ask("SUBSCRIBE", **{**DURABLE, "id": "eve"})
    client.ask("UNSUBSCRIBE", id="ada", durable="true")
    connect_own().ask("SUBSCRIBE", **{**DURABLE, "id": "eve"})


def test_positions_go_with_their_topic(gateway: GatewayProcess, connect_own: Connect) -> None:
    client = connect_own()
    for name in ("ada", "bob"):
        client.ask("SUBSCRIBE", **{**DURABLE, "id": name})
    gateway.run_command("topics", "delete", "news", "--yes")
    with pytest.raises(NotAccepted):
        client.read_frame()
    client = connect_own()
    for name in ("cleo", "dan"):
        client.ask("SUBSCRIBE", **{**DURABLE, "id": name})


def test_a_subscriber_that_does_not_read_holds_up_no_other(connect: Connect, name: str) -> None:
    slow, quick, writer = connect(), connect(), connect()
    slow.ask("SUBSCRIBE", id=1, destination=f"/topic/{name}")
    quick.ask("SUBSCRIBE", id=1, destination=f"/topic/{name}")
    bodies = [b"%04d" % number * 50_000 for number in range(100)]  # 20 MB
    for body in bodies:
        publish(writer, f"/topic/{name}", body)
        assert quick.bodies(1) == [body]
    assert [body[:4] for body in slow.bodies(100)] == [body[:4] for body in bodies]
