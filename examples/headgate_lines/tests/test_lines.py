"""The protocol and the storage in a running gateway, over a socket."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gateway.testing.adapter_client import Hangup
from gateway.testing.fixtures import StartGateway
from gateway.testing.gateway_process import GatewayProcess
from gateway.testing.process import ProgramFailed
from tests.lines_client import LinesClient

Connect = Callable[[], LinesClient]


SETTINGS = {
    "storage.adapter": "drawer",
    "adapters.lines.line_bytes_max": 1_000,
    "adapters.lines.readers_max": 2,
    "queues": [{"name": "jobs", "lease_ms": 600_000}],
}
"""Batches are kept in a drawer."""


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Return a gateway that no test ends; each has topics of its own there."""
    with GatewayProcess(tmp_path_factory.mktemp("shared"), ["lines"], SETTINGS) as gateway:
        yield gateway


@pytest.fixture
def gateway(start_gateway: StartGateway) -> GatewayProcess:
    """Return a gateway of the test's own."""
    return start_gateway("lines", settings=SETTINGS)


@pytest.fixture
def connect_shared(shared_gateway: GatewayProcess) -> Iterator[Connect]:
    """Open connections to the shared gateway that end with the test."""
    yield from _connections(shared_gateway)


@pytest.fixture
def connect(gateway: GatewayProcess) -> Iterator[Connect]:
    """Open connections to the test's own gateway that end with the test."""
    yield from _connections(gateway)


def _connections(gateway: GatewayProcess) -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(LinesClient(gateway.ports["lines"]))


def test_what_is_published_reaches_who_subscribed(connect_shared: Connect) -> None:
    reader, writer = connect_shared(), connect_shared()
    assert writer.ask("PUB news too early") == "+OK 0 0"
    assert reader.ask("SUB news") == "+OK"
    assert writer.ask("PUB news hello  wörld") == "+OK 0 1"
    assert reader.line() == 'MSG news 0 1 "hello  wörld"'


def test_a_run_of_lines_is_answered_in_order(connect_shared: Connect) -> None:
    client = connect_shared()
    client.say(
        "PING", "PUB a one", "PUB b two", "PUB a three", "NONSENSE", "PING", "PUB a four"
    )
    answers = [client.line() for _ in range(7)]
    assert answers[:4] == ["+PONG", "+OK 0 0", "+OK 0 0", "+OK 0 1"]
    assert answers[4].startswith("-InvalidRequest PING, AUTH")
    assert answers[5:] == ["+PONG", "+OK 0 2"]


def test_delayed_line_comes_at_its_time_after_a_kill_too(
    gateway: GatewayProcess, connect: Connect
) -> None:
    writer = connect()
    assert writer.ask("PUB orders now") == "+OK 0 0"
    assert writer.ask("SEEN orders ada 0") == "+OK"
    assert writer.ask("LATER soon orders never").startswith("-InvalidRequest")
    assert writer.ask("LATER 600000 orders much later") == "+OK"
    assert writer.ask("LATER 500 orders later") == "+OK"
    gateway.kill()
    gateway.restart()
    reader = connect()
    assert reader.ask("SUB orders ada") == "+OK"
    assert reader.line() == 'MSG orders 0 1 "later"'


def test_acknowledged_lines_survive_a_kill(gateway: GatewayProcess, connect: Connect) -> None:
    client = connect()
    for number in range(20):
        assert client.ask(f"PUB orders {number}") == f"+OK 0 {number}"
    gateway.kill()
    gateway.restart()
    assert connect().ask("PUB orders next") == "+OK 0 20"


def test_it_stops_cleanly_under_a_subscriber(gateway: GatewayProcess, connect: Connect) -> None:
    client = connect()
    assert client.ask("SUB orders") == "+OK"
    gateway.stop()  # with exit status 0
    with pytest.raises(Hangup):
        client.line()


def test_bad_input_closes_only_its_own_connection(connect_shared: Connect) -> None:
    good, long_winded, garbled = (connect_shared() for _ in range(3))
    long_winded.say("PUB a " + "x" * 2_000)
    with pytest.raises(Hangup):
        long_winded.line()
    garbled.send_bytes(b"PING \xff\n")
    with pytest.raises(Hangup):
        garbled.line()
    assert good.ask("PUB no/slash x").startswith("-InvalidTopicName")
    assert good.ask("PING") == "+PONG"


def test_from_the_first_user_on_everybody_must_log_in(
    gateway: GatewayProcess, connect: Connect
) -> None:
    client = connect()
    assert client.ask("PUB orders open") == "+OK 0 0"
    # `users add` asks for the password; from a script it comes on standard input.
    gateway.add_user("alice", "secret")
    assert client.ask("PUB orders closed").startswith("-Unauthenticated")
    assert client.ask("AUTH alice wrong").startswith("-Unauthenticated")
    assert client.ask("AUTH alice secret") == "+OK"
    assert client.ask("PUB orders open again") == "+OK 0 1"


def test_commands_see_what_the_plugin_does(gateway: GatewayProcess, connect: Connect) -> None:
    client = connect()
    assert client.ask("PUB orders hello") == "+OK 0 0"
    described = gateway.run_command("topics", "describe", "orders", "--json")
    topic = json.loads("\n".join(described))
    assert topic["partitions"][0]["high_watermark"] == 1
    listed = gateway.run_command("clients", "ls", "--json")
    assert [row["protocol"] for row in json.loads("\n".join(listed))] == ["lines"]


def test_check_config_knows_the_plugins_keys(shared_gateway: GatewayProcess) -> None:
    lines = shared_gateway.run_command("check-config")
    assert "line_bytes_max = 1000  # default: 65536" in lines
    assert 'adapter = "drawer"  # default: "segment_log"' in lines
    with pytest.raises(ProgramFailed, match=r"ended with 2\n.*did you mean 'drawer'\?"):
        shared_gateway.run_command("serve", "--set", "storage.adapter=drawr")


def test_a_queue_gives_each_message_to_one_client(connect: Connect) -> None:
    first, second = connect(), connect()
    first.say("PUB jobs one", "PUB jobs two")
    assert [first.line(), first.line()] == ["+OK 0 0", "+OK 0 1"]
    assert first.ask("TAKE jobs") == 'MSG jobs 0 0 1 "one"'
    assert second.ask("TAKE jobs") == 'MSG jobs 0 1 1 "two"'
    assert second.ask("DONE jobs 0 1 1") == "+OK"
    assert second.ask("DONE jobs 0 1 1").startswith("-InvalidRequest")
    assert second.ask("TAKE jobs") == "+NONE"


def test_what_is_taken_goes_back_when_its_client_goes(connect: Connect) -> None:
    first, second = connect(), connect()
    assert first.ask("PUB jobs one") == "+OK 0 0"
    assert first.ask("TAKE jobs") == 'MSG jobs 0 0 1 "one"'
    first.close()
    answer = "+NONE"
    while answer == "+NONE":
        answer = second.ask("TAKE jobs")
    assert answer == 'MSG jobs 0 0 2 "one"'


def test_there_is_no_queue_unless_somebody_makes_it(connect_shared: Connect) -> None:
    assert connect_shared().ask("TAKE work") == "-TopicNotFound there is no queue work"


def test_a_named_reader_goes_on_after_a_kill(gateway: GatewayProcess, connect: Connect) -> None:
    client = connect()
    client.say("PUB orders one", "PUB orders two", "PUB orders three")
    assert [client.line() for _ in range(3)] == ["+OK 0 0", "+OK 0 1", "+OK 0 2"]
    assert client.ask("SEEN orders ada 0") == "+OK"
    gateway.kill()
    gateway.restart()
    reader = connect()
    assert reader.ask("SUB orders ada") == "+OK"
    assert [reader.line(), reader.line()] == ['MSG orders 0 1 "two"', 'MSG orders 0 2 "three"']


def test_numbers_are_numbers(connect_shared: Connect) -> None:
    client = connect_shared()
    for line in (
        "SEEN orders ada -1",
        "SEEN orders ada \u00b2",
        "DONE jobs 0 0",
        "TAKE",
        "SUB a b c",
    ):
        assert client.ask(line).startswith("-InvalidRequest PING, AUTH"), line


def test_readers_have_a_bound(connect: Connect) -> None:
    client = connect()
    assert client.ask("SEEN orders ada 9") == "+OK"
    assert client.ask("SEEN orders bob 9") == "+OK"
    assert client.ask("SEEN orders eve 9") == "-Overloaded readers_max is 2"
    assert client.ask("SEEN orders ada 10") == "+OK"


def test_a_position_beyond_the_end_is_the_end(connect: Connect) -> None:
    reader, writer = connect(), connect()
    assert reader.ask("SEEN orders ada 99") == "+OK"
    assert reader.ask("SUB orders ada") == "+OK"
    assert writer.ask("PUB orders one") == "+OK 0 0"
    assert reader.line() == 'MSG orders 0 0 "one"'
