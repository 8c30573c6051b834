"""Removed users and changed rules: what is connected, and what waits, is judged anew at once."""

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.interop.sqs.programs.client_api import Refused
from tests.interop.sqs.programs.with_boto3 import Boto3
from tests.security.gateway_with_users import ANONYMOUS, PASSWORD, GatewayWithUsers
from tests.support.kafka_wire import FETCH, METADATA, fetch_body, fetch_records, request
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import V3_1_1, V5, Kind, connect
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

NOT_AUTHORIZED: Final = 0x87
TOPIC_AUTHORIZATION_FAILED: Final = 29
ALL_TOPICS: Final = b"\xff\xff\xff\xff"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayWithUsers]:
    """A gateway whose users may do everything that no rule denies."""
    settings = {"auth.required": "true", "auth.default": "allow"}
    with GatewayWithUsers(tmp_path / "data", ("t",), settings) as running:
        yield running


@pytest.fixture
def open_gateway(tmp_path: Path) -> Iterator[GatewayWithUsers]:
    """A gateway where nobody has to log in."""
    with GatewayWithUsers(tmp_path / "data", ("t",), {}) as running:
        yield running


def mqtt(gateway: GatewayWithUsers, who: str, version: int = V5) -> RawClient:
    """Open an MQTT connection of somebody's."""
    client = RawClient(gateway.mqtt_port, version=version)
    is_named = who != ANONYMOUS
    client.send(
        connect(
            f"{who}-{version}",
            version=version,
            username=who if is_named else None,
            password=PASSWORD.encode() if is_named else None,
        )
    )
    assert client.receive(Kind.CONNACK).code == 0
    return client


def test_a_removed_user_is_disconnected_everywhere(gateway: GatewayWithUsers) -> None:
    ada = gateway.kafka("ada"), mqtt(gateway, "ada"), mqtt(gateway, "ada", V3_1_1)
    bob = gateway.kafka("bob"), mqtt(gateway, "bob")
    before = gateway.may_send("ada", "t")

    assert gateway.admin("DELETE", "users/ada") == http.client.NO_CONTENT

    ada[1].refused(NOT_AUTHORIZED)
    ada[2].refused()
    with pytest.raises(ConnectionError):
        ada[0].call(METADATA, 1, ALL_TOPICS)
    assert before
    assert not gateway.may_send("ada", "t")
    assert bob[0].call(METADATA, 1, ALL_TOPICS)
    assert bob[1].subscribe(("t/x", 1)) == [1]
    for client in (ada[0], bob[0]):
        client.socket.close()
    for subscriber in (*ada[1:], bob[1]):
        subscriber.drop()


def test_who_did_not_log_in_is_disconnected_when_the_first_user_is_added(
    open_gateway: GatewayWithUsers,
) -> None:
    gateway = open_gateway
    stranger = gateway.kafka(ANONYMOUS)
    device, root = mqtt(gateway, ANONYMOUS), mqtt(gateway, "root")
    before = gateway.may_send(ANONYMOUS, "t"), stranger.call(METADATA, 1, ALL_TOPICS) != b""

    added = gateway.admin("PUT", "users/first", {"password": "x"})

    device.refused(NOT_AUTHORIZED)
    with pytest.raises(ConnectionError):
        stranger.call(METADATA, 1, ALL_TOPICS)
    assert (before, added) == ((True, True), http.client.OK)
    assert not gateway.may_send(ANONYMOUS, "t")
    assert not gateway.lets_kafka_in()
    assert root.subscribe(("t/x", 1)) == [1]
    stranger.socket.close()
    for subscriber in (device, root):
        subscriber.drop()


def test_a_fetch_that_waits_asks_again_when_it_completes(gateway: GatewayWithUsers) -> None:
    reader, other = gateway.kafka("ada"), gateway.kafka("bob")
    for connection in (reader, other):
        connection.socket.sendall(request(FETCH, 4, 7, fetch_body("t", 0, 0, wait_ms=30_000)))
    wait_until(
        lambda: gateway.counted("headgate_requests_total", 'api="Fetch"') == 2,
        within_s=30,
        what="both fetches",
    )

    gateway.rule("deny", "ada", "topic", "literal", "t")
    gateway.rule("allow", "*", "topic", "literal", "t")
    assert gateway.may_produce("root", "t")

    denied, allowed = (fetch_records(one.read()[4:]) for one in (reader, other))
    assert (denied[0], denied[2]) == (TOPIC_AUTHORIZATION_FAILED, b"")
    assert allowed[0] == 0
    assert allowed[2] != b""
    for connection in (reader, other):
        connection.socket.close()


@pytest.mark.parametrize("what", ["rule", "user"])
def test_a_receive_that_waits_asks_again_when_it_completes(
    gateway: GatewayWithUsers, what: str
) -> None:
    ada, root = (Boto3(gateway.endpoint_of(who)) for who in ("ada", "root"))
    waiting = ada.start("ReceiveMessage", QueueUrl="t", WaitTimeSeconds=20)
    wait_until(
        lambda: gateway.counted("headgate_requests_total", 'api="ReceiveMessage"') == 1,
        within_s=30,
        what="the receive",
    )

    if what == "rule":
        gateway.rule("deny", "ada", "topic", "literal", "t")
    else:
        assert gateway.admin("DELETE", "users/ada") == http.client.NO_CONTENT
    root.call("SendMessage", QueueUrl="t", MessageBody="for others")

    with pytest.raises(Refused) as refused:
        waiting.result(30)
    assert refused.value.code == "AccessDenied"
    found = root.call("ReceiveMessage", QueueUrl="t", WaitTimeSeconds=20)
    assert [message["Body"] for message in found["Messages"]] == ["for others"]
    for api in (ada, root):
        api.close()
