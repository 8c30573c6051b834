"""A third party's protocol and storage in a real gateway, over a socket."""

import json

from tests.plugins.lines_gateway import LinesGateway


def test_what_is_published_reaches_who_subscribed(gateway: LinesGateway) -> None:
    reader, writer = gateway.client(), gateway.client()
    assert writer.ask("PUB orders too early") == "+OK 0 0"
    assert reader.ask("SUB orders") == "+OK"
    assert writer.ask("PUB orders hello  wörld") == "+OK 0 1"
    assert reader.line() == 'MSG orders 0 1 "hello  wörld"'


def test_a_run_of_lines_is_answered_in_order(gateway: LinesGateway) -> None:
    client = gateway.client()
    client.send(
        "PING", "PUB a one", "PUB b two", "PUB a three", "NONSENSE", "PING", "PUB a four"
    )
    answers = [client.line() for _ in range(7)]
    assert answers[:4] == ["+PONG", "+OK 0 0", "+OK 0 0", "+OK 0 1"]
    assert answers[4].startswith("-InvalidRequest PING, AUTH")
    assert answers[5:] == ["+PONG", "+OK 0 2"]


def test_acknowledged_lines_survive_a_kill(gateway: LinesGateway) -> None:
    client = gateway.client()
    for number in range(20):
        assert client.ask(f"PUB orders {number}") == f"+OK 0 {number}"
    gateway.program.kill()
    gateway.start()
    assert gateway.client().ask("PUB orders next") == "+OK 0 20"


def test_it_stops_cleanly_under_a_subscriber(gateway: LinesGateway) -> None:
    client = gateway.client()
    assert client.ask("SUB orders") == "+OK"
    assert gateway.program.stop() == 0
    assert client.line() == ""


def test_bad_input_closes_only_its_own_connection(gateway: LinesGateway) -> None:
    good, long_winded, garbled = gateway.client(), gateway.client(), gateway.client()
    long_winded.send("PUB a " + "x" * 2_000)
    assert long_winded.line() == ""
    garbled.send_data(b"PING \xff\n")
    assert garbled.line() == ""
    assert good.ask("PUB no/slash x").startswith("-InvalidTopicName")
    assert good.ask("PING") == "+PONG"


def test_from_the_first_user_on_everybody_must_log_in(gateway: LinesGateway) -> None:
    client = gateway.client()
    assert client.ask("PUB orders open") == "+OK 0 0"
    # `users add` asks for the password; from a script it comes on standard input.
    assert gateway.add_user("alice", "secret") == 0
    assert client.ask("PUB orders closed").startswith("-Unauthenticated")
    assert client.ask("AUTH alice wrong").startswith("-Unauthenticated")
    assert client.ask("AUTH alice secret") == "+OK"
    assert client.ask("PUB orders open again") == "+OK 0 1"


def test_commands_see_what_the_plugin_does(gateway: LinesGateway) -> None:
    client = gateway.client()
    assert client.ask("PUB orders hello") == "+OK 0 0"
    config = ("--config", str(gateway.config))
    described = gateway.command("topics", "describe", "orders", "--json", *config)
    topic = json.loads("\n".join(described.finish(within_s=30)))
    assert topic["partitions"][0]["high_watermark"] == 1
    listed = gateway.command("clients", "ls", "--json", *config).finish(within_s=30)
    assert [row["protocol"] for row in json.loads("\n".join(listed))] == ["lines"]


def test_check_config_knows_the_plugins_keys(gateway: LinesGateway) -> None:
    lines = gateway.command("check-config", "--config", str(gateway.config)).finish(within_s=30)
    assert "line_bytes_max = 1000  # default: 65536" in lines
    assert 'adapter = "drawer"  # default: "segment_log"' in lines
    refused = gateway.command("serve", "--set", "storage.adapter=drawr")
    refused.wait_for_line("did you mean 'drawer'?", within_s=30)
    assert refused.ended(within_s=30) == 2
