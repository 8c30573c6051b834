"""A full disk under AMQP: publishers are blocked, consumers go on, nothing is lost."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.methods.basic import BasicAck, BasicConsumeOk, BasicNack
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.connection import ConnectionBlocked, ConnectionUnblocked
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from adapters.amqp.v091.methods.tx import TxCommit, TxCommitOk, TxSelect, TxSelectOk
from gateway.testing.ports import free_port
from tests.adapters.amqp.conformance.methods import consume, declare
from tests.crash.small_disk import DISK_BYTES
from tests.support.amqp_raw import RawAmqp
from tests.support.gateway import Gateway
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk"),
]

SEGMENT_BYTES = 4 << 20
FILLER = bytes(range(256)) * 400
MESSAGES_MAX = 2 * DISK_BYTES // len(FILLER)
WITHIN_S = 30


class FullDisk:
    """A gateway on a small disk, and how many messages of which queue were confirmed."""

    def __init__(self, gateway: Gateway, port: int) -> None:
        self.gateway = gateway
        self.port = port
        self.confirmed = 0

    def client(self) -> RawAmqp:
        capabilities = Table([("connection.blocked", Field("t", value=True))])
        properties = Table([("capabilities", Field("F", capabilities))])
        client = RawAmqp(self.port).open(properties=properties)
        client.channel(1)
        return client

    def publisher(self) -> RawAmqp:
        client = self.client()
        client.ask(1, declare("filler"), QueueDeclareOk)
        client.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
        return client

    def fill(self, publisher: RawAmqp) -> None:
        """Publish until that is refused."""
        for _ in range(MESSAGES_MAX):
            publisher.publish(1, "filler", FILLER)
            answer = publisher.read()
            if isinstance(answer, BasicNack):
                assert self.confirmed > 0
                return
            assert isinstance(answer, BasicAck)
            self.confirmed += 1
        pytest.fail("the disk took more than it has")


@pytest.fixture
def full(small_disk: Path, ballast: Path) -> Iterator[FullDisk]:
    assert ballast.exists()
    port = free_port()
    settings = {
        "storage.segment_bytes": SEGMENT_BYTES,
        "storage.reserve_bytes": SEGMENT_BYTES // 2,
        "adapters.amqp.bind": f"127.0.0.1:{port}",
    }
    with Gateway(small_disk / "data", settings) as running:
        yield FullDisk(running, port)


def blocked(publisher: RawAmqp, body: bytes = FILLER) -> None:
    """Publish, while the node may just try whether there is room, until that blocks."""

    def is_blocked() -> bool:
        publisher.publish(1, "filler", body)
        answer = publisher.read()
        while isinstance(answer, ConnectionUnblocked | BasicNack):
            if isinstance(answer, BasicNack):
                return False
            answer = publisher.read()
        assert answer == ConnectionBlocked("low on disk")
        return True

    wait_until(is_blocked, within_s=WITHIN_S, what="blocked")


def test_publishers_are_blocked_until_there_is_room(full: FullDisk, ballast: Path) -> None:
    publisher = full.publisher()
    full.fill(publisher)
    blocked(publisher)

    ballast.unlink()
    answers = []

    def is_confirmed() -> bool:
        answers.append(publisher.read())
        if isinstance(answers[-1], BasicNack):  # the node had tried before there was room
            publisher.publish(1, "filler", FILLER)
        return isinstance(answers[-1], BasicAck)

    wait_until(is_confirmed, within_s=WITHIN_S, what="room, and a confirm")
    assert isinstance(answers[0], ConnectionUnblocked)
    publisher.close()


def test_consumers_go_on_and_what_was_confirmed_is_there(full: FullDisk, ballast: Path) -> None:
    publisher = full.publisher()
    full.fill(publisher)
    blocked(publisher)
    consumer = full.client()
    consumer.ask(1, TxSelect(), TxSelectOk)
    consumer.ask(1, consume("filler"), BasicConsumeOk)
    for tag in range(1, full.confirmed + 1):
        assert consumer.read_message().body == FILLER
        consumer.send(1, BasicAck(tag, multiple=False))
    consumer.ask(1, TxCommit(), TxCommitOk)  # all of it is on the disk
    counted = partial(consumer.ask, 1, declare("filler", passive=True), QueueDeclareOk)
    assert counted().message_count == 0
    consumer.close()
    publisher.close()

    full.gateway.kill()
    ballast.unlink()
    full.gateway.restart()
    again = full.client()
    found = again.ask(1, declare("filler", passive=True), QueueDeclareOk)
    assert found.message_count == 0  # all was acknowledged
    again.close()
