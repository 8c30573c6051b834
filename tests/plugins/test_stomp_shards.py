"""STOMP on a node that has half of the shards: its clients see which half."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.testing.adapter_client import AdapterClient, Credentials, Hangup
from tests.plugins.conftest import STOMP
from tests.plugins.half_node import Half, make_known, running_half
from tests.support.placed_node import SHARDS


class Stomp(AdapterClient):
    """A connection that sends frames without escapes, and reads frames with their bodies."""

    def log_in(self, credentials: Credentials | None) -> None:
        assert credentials is None
        self.say("CONNECT", "accept-version:1.2")
        assert self.frame().startswith("CONNECTED")

    def encode_message(self, body: bytes) -> bytes:
        raise NotImplementedError

    def wait_acknowledged(self) -> None:
        raise NotImplementedError

    def say(self, *lines: str, body: str = "") -> None:
        self.send_bytes(("\n".join([*lines, "", ""]) + body + "\0").encode())

    def frame(self) -> str:
        return self.read_until(b"\0").decode().rstrip("\0").lstrip("\n")

    def ask(self, *lines: str, body: str = "") -> str:
        """Send a frame with a receipt; return the answer."""
        self.say(*lines, "receipt:r", body=body)
        return self.frame()

    def publish(self, destination: str, body: str) -> None:
        assert self.ask("SEND", f"destination:{destination}", body=body).startswith("RECEIPT")

    def subscribe(self, destination: str, *more: str) -> str:
        return self.ask("SUBSCRIBE", "id:1", f"destination:{destination}", *more)

    def message(self) -> tuple[str, str]:
        """Return the ack id and the body of the next message."""
        head, _, body = self.frame().partition("\n\n")
        lines = head.split("\n")
        assert lines[0] == "MESSAGE", head
        acks = [line.removeprefix("ack:") for line in lines if line.startswith("ack:")]
        return "".join(acks), body

    def is_refused(self, answer: str) -> bool:
        """Say whether an answer is that of a node that is not the leader; then it hangs up."""
        assert answer.startswith("ERROR\n"), answer
        with pytest.raises(Hangup):
            self.frame()
        return "\nmessage:Not the leader\n" in answer


Connect = Callable[[], Stomp]
DURABLE = "durable:true"


@pytest.fixture(autouse=True)
def _known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_known(STOMP, tmp_path, monkeypatch)


@contextmanager
def running(folder: Path, **placed: Any) -> Iterator[tuple[Half, Connect]]:
    with running_half(folder, "stomp", {}, **placed) as half, ExitStack() as stack:

        def connect() -> Stomp:
            client = stack.enter_context(Stomp(half.node.ports["stomp"]))
            client.log_in(None)
            return client

        yield half, connect


def test_what_the_other_half_has_is_refused_until_it_comes_back(tmp_path: Path) -> None:
    with running(tmp_path / "data") as (half, connect):
        half.node.give_half()
        for destination in (f"/queue/{half.given_queue}", f"/topic/{half.given}"):
            client = connect()
            assert client.is_refused(client.subscribe(destination)), destination
        reader = connect()
        assert reader.subscribe(f"/queue/{half.kept_queue}").startswith("RECEIPT")
        connect().publish(f"/queue/{half.kept_queue}", "kept")
        assert reader.message()[1] == "kept"

        half.node.take_half()
        reader = connect()
        assert reader.subscribe(f"/queue/{half.given_queue}").startswith("RECEIPT")
        connect().publish(f"/queue/{half.given_queue}", "given")
        assert reader.message()[1] == "given"


def test_a_subscriber_is_told_when_its_queue_or_topic_leaves(tmp_path: Path) -> None:
    with running(tmp_path / "data") as (half, connect):
        readers = [connect(), connect()]
        for reader, name in zip(
            readers, (f"/queue/{half.given_queue}", f"/topic/{half.given}"), strict=True
        ):
            assert reader.subscribe(name, "ack:client-individual").startswith("RECEIPT")
            connect().publish(name, "before")
            assert reader.message()[1] == "before"
        half.node.give_half()
        for reader in readers:
            assert reader.is_refused(reader.frame())
        half.node.take_half()
        again = connect()
        assert again.subscribe(f"/queue/{half.given_queue}").startswith("RECEIPT")
        assert again.message()[1] == "before"


def test_positions_are_in_the_half_of_their_topic(tmp_path: Path) -> None:
    with running(tmp_path / "data") as (half, connect):
        for name in (half.kept, half.given):
            reader = connect()
            reader.subscribe(f"/topic/{name}", DURABLE, "ack:client")
            for body in ("one", "two"):
                connect().publish(f"/topic/{name}", body)
            first = reader.message()[0]
            assert reader.ask("ACK", f"id:{first}").startswith(("RECEIPT", "MESSAGE"))
            reader.ask("DISCONNECT")

    with running(tmp_path / "data", away=range(SHARDS // 2, SHARDS)) as (half, connect):
        reader = connect()
        assert reader.subscribe(f"/topic/{half.kept}", DURABLE).startswith("RECEIPT")
        assert reader.message()[1] == "two"
        refused = connect()
        assert refused.is_refused(refused.subscribe(f"/topic/{half.given}", DURABLE))
        half.node.take_half()
        reader = connect()
        assert reader.subscribe(f"/topic/{half.given}", DURABLE).startswith("RECEIPT")
        assert reader.message()[1] == "two"
