"""The example's protocol on a node that has half of the shards: its clients see which half."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.model import TopicName
from tests.plugins.conftest import LINES
from tests.plugins.half_node import Half, make_known, running_half
from tests.support.placed_node import SHARDS
from tests.support.waiting import wait_until

ANSWER_S_MAX: Final = 60.0


class Lines:
    """A connection that sends lines and reads lines."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX)
        self._read = self._socket.makefile("r", encoding="utf-8", newline="\n")

    def say(self, *lines: str) -> None:
        """Send lines in one write."""
        self._socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def line(self) -> str:
        """Return the next line."""
        return self._read.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        """Send a line and return the answer."""
        self.say(line)
        return self.line()

    def close(self) -> None:
        """Close the connection."""
        self._read.close()
        self._socket.close()


Connect = Callable[[], Lines]


@pytest.fixture(autouse=True)
def _known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_known(LINES, tmp_path, monkeypatch)


def running(folder: Path, **placed: Any) -> AbstractContextManager[Half]:
    return running_half(folder, "lines", {"adapters.lines.take_wait_ms": 20_000}, **placed)


@pytest.fixture
def half(tmp_path: Path) -> Iterator[Half]:
    """Yield a node that still has all of its shards."""
    with running(tmp_path / "data") as half:
        yield half


@pytest.fixture
def connect(half: Half) -> Iterator[Connect]:
    """Open connections that end with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(opened(half))


def opened(half: Half) -> closing[Lines]:
    """Return a connection that ends with its block."""
    return closing(Lines(half.node.ports["lines"]))


def refusal(name: str) -> str:
    return f"-NotLeader partition 0 of {name} is another node's"


def test_topics_of_the_other_half_are_refused_until_they_come_back(
    half: Half, connect: Connect
) -> None:
    client = connect()
    for name in (half.kept, half.given):
        assert client.ask(f"PUB {name} before") == "+OK 0 0"
    half.node.give_half()

    for command in ("PUB {} x", "LATER 1 {} x", "SUB {}", "SUB {} ada", "SEEN {} ada 0"):
        assert client.ask(command.format(half.given)) == refusal(half.given), command
    assert client.ask(f"PUB {half.kept} during") == "+OK 0 1"
    assert client.ask(f"SEEN {half.kept} ada 0") == "+OK"
    assert client.ask(f"SUB {half.kept} ada") == "+OK"
    assert client.line() == f'MSG {half.kept} 0 1 "during"'

    half.node.take_half()
    assert connect().ask(f"PUB {half.given} after") == "+OK 0 1"


def test_a_run_to_both_halves_keeps_what_is_served_here(half: Half, connect: Connect) -> None:
    half.node.give_half()
    client = connect()
    client.say(*(f"PUB {name} x" for name in (half.kept, half.given, half.kept)))
    assert [client.line() for _ in range(3)] == ["+OK 0 0", refusal(half.given), "+OK 0 1"]


def test_a_subscriber_is_told_when_its_topic_leaves_and_reads_on_when_it_is_back(
    half: Half, connect: Connect
) -> None:
    reader, writer = connect(), connect()
    for name in (half.kept, half.given):
        assert reader.ask(f"SUB {name}") == "+OK"
    assert writer.ask(f"PUB {half.given} before") == "+OK 0 0"
    assert reader.line() == f'MSG {half.given} 0 0 "before"'
    assert reader.ask(f"SEEN {half.given} ada 0") == "+OK"
    assert writer.ask(f"PUB {half.given} unseen") == "+OK 0 1"
    assert reader.line() == f'MSG {half.given} 0 1 "unseen"'

    half.node.give_half()
    assert reader.line() == refusal(half.given)
    assert writer.ask(f"PUB {half.kept} during") == "+OK 0 0"
    assert reader.line() == f'MSG {half.kept} 0 0 "during"'

    half.node.take_half()
    assert writer.ask(f"PUB {half.given} after") == "+OK 0 2"
    assert reader.ask(f"SUB {half.given} ada") == "+OK"
    assert [reader.line(), reader.line()] == [
        f'MSG {half.given} 0 1 "unseen"',
        f'MSG {half.given} 0 2 "after"',
    ]
    assert reader.ask(f"SEEN {half.given} ada 2") == "+OK"


def test_a_queue_of_the_other_half_is_refused_and_its_messages_stay(
    half: Half, connect: Connect
) -> None:
    client, waiting = connect(), connect()
    for name in (half.kept_queue, half.given_queue):
        client.say(f"PUB {name} one", f"PUB {name} two")
        assert [client.line(), client.line()] == ["+OK 0 0", "+OK 0 1"]
        assert client.ask(f"TAKE {name}") == f'MSG {name} 0 0 1 "one"'
    half.node.give_half()

    for command in ("PUB {} x", "TAKE {}", "DONE {} 0 0 1"):
        assert client.ask(command.format(half.given_queue)) == refusal(half.given_queue)
    assert client.ask(f"DONE {half.kept_queue} 0 0 1") == "+OK"
    assert waiting.ask(f"TAKE {half.kept_queue}") == f'MSG {half.kept_queue} 0 1 1 "two"'

    half.node.take_half()
    assert client.ask(f"DONE {half.given_queue} 0 0 1") == "+OK"
    assert client.ask(f"TAKE {half.given_queue}") == f'MSG {half.given_queue} 0 1 1 "two"'


def test_a_take_that_waits_ends_when_its_queue_leaves(half: Half, connect: Connect) -> None:
    client = connect()
    client.say(f"TAKE {half.given_queue}")
    queue = half.node.kernel.queues.find(TopicName("default", half.given_queue))
    assert queue is not None
    wait_until(lambda: queue.waiting_count == 1, within_s=60, what="the TAKE waits")
    half.node.give_half()
    assert client.line() == "+NONE"
    assert client.ask(f"TAKE {half.given_queue}") == refusal(half.given_queue)


def test_a_start_with_half_of_the_shards_has_the_positions_of_that_half(
    tmp_path: Path,
) -> None:
    readers = [f"reader-{n}" for n in range(8)]
    with running(tmp_path / "data") as half, opened(half) as client:
        for name in (half.kept, half.given):
            client.say(f"PUB {name} one", f"PUB {name} two")
            client.say(*(f"SEEN {name} {reader} 0" for reader in readers))
            assert [client.line(), client.line()] == ["+OK 0 0", "+OK 0 1"]
            assert [client.line() for _ in readers] == ["+OK"] * len(readers)

    with running(tmp_path / "data", away=range(SHARDS // 2, SHARDS)) as half:
        check_positions(half, half.kept, readers)
        with opened(half) as client:
            assert client.ask(f"SUB {half.given} {readers[0]}") == refusal(half.given)
            assert client.ask(f"TAKE {half.given_queue}") == refusal(half.given_queue)

            half.node.take_half()
            assert client.ask(f"PUB {half.given_queue} job") == "+OK 0 0"
            assert (
                client.ask(f"TAKE {half.given_queue}") == f'MSG {half.given_queue} 0 0 1 "job"'
            )
        check_positions(half, half.given, readers)


def check_positions(half: Half, topic: str, readers: list[str]) -> None:
    """Check that each reader goes on behind the first message."""
    for reader in readers:
        with opened(half) as client:
            assert client.ask(f"SUB {topic} {reader}") == "+OK"
            assert client.line() == f'MSG {topic} 0 1 "two"'
