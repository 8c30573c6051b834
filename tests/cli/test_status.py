"""``status``, moves of a group's offsets, MQTT's commands and completion of names."""

import os
import subprocess
import sys
from collections.abc import Iterator

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.cli.conftest import Run
from tests.support.gateway import ROOT
from tests.support.mqtt_gateway import MqttGateway


@pytest.fixture(scope="module")
def mqtt_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttGateway]:
    with MqttGateway(tmp_path_factory.mktemp("data")) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def _of_the_node(mqtt_node: MqttGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_NODE__DATA_DIR", str(mqtt_node.data_dir))


def test_a_node_fits_one_screen(run: Run) -> None:
    lines = run("status").out.splitlines()
    assert lines[0].startswith("headgate ")
    assert " ready, up " in lines[0]
    assert any(line.split()[:2] == ["kafka", "kafka"] for line in lines)
    found = run("status", "--json").json
    assert found["node"]["is_ready"]
    assert found["counts"]["queues"] == 0


def test_a_move_of_offsets_is_shown_before_it_is_done(run: Run) -> None:
    assert run("topics", "create", "bills").status == 0
    for value in ("a", "b", "c"):
        assert run("send", "bills", value).status == 0
    assert run("groups", "reset", "g", "--topic", "bills", "--to", "1").status == 0
    shown = run("groups", "reset", "g", "--topic", "bills", "--shift-by=-1", "--dry-run")
    assert shown.out.splitlines()[1].split() == ["bills", "0", "1", "0", "3", "1", "again"]
    assert shown.err == "nothing has changed: leave out --dry-run to move them\n"
    assert run("groups", "offsets", "g", "--json").json[0]["offset"] == 1
    later = ("groups", "reset", "g", "--topic", "bills", "--to-time", "2100-01-01", "--json")
    assert run(*later).json[0]["offset"] == 3
    assert run("groups", "forget-topic", "g", "bills", "--yes").status == 0
    assert run("groups", "offsets", "g").status == 1


@pytest.mark.parametrize(
    "arguments",
    [(), ("--to", "latest", "--shift-by", "1"), ("--to-time", "some day")],
)
def test_a_move_names_one_place(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("groups", "reset", "g", "--topic", "bills", *arguments).status == 2


def test_sessions_of_mqtt_are_listed_and_ended(run: Run, mqtt_node: MqttGateway) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, "meter-7")
    client.connect("127.0.0.1", mqtt_node.mqtt_port)
    client.subscribe("plant/+/temp", 1)
    client.loop_start()
    client.publish("plant/9/temp", b"21", qos=1, retain=True).wait_for_publish(20)
    try:
        (session,) = run("mqtt", "sessions", "--json").json
        assert (session["client_id"], session["is_connected"]) == ("meter-7", True)
        assert run("mqtt", "subs").out.splitlines()[1].split()[:2] == [
            "meter-7",
            "plant/+/temp",
        ]
        assert run("mqtt", "retained", "plant/#").out.splitlines()[1].split() == [
            "plant/9/temp", "1", "meter-7", "21",
        ]  # fmt: skip
        who = run("mqtt", "who", "plant/9/temp")
        assert who.out.splitlines()[1].split()[0] == "meter-7"
        assert who.err == "kept in topic mqtt of the log\n"
        assert run("mqtt", "disconnect", "meter-7", "--yes").out == "disconnected meter-7\n"
        assert run("mqtt", "disconnect", "nobody", "--yes").status == 1
    finally:
        client.loop_stop()
    assert run("mqtt", "retained", "no/+").err == "no retained message matches no/+\n"


def complete(words: str, count: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "gateway"],
        cwd=ROOT,
        env={
            **os.environ,
            "_HEADGATE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(count),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_a_shell_completes_names_of_the_node(run: Run) -> None:
    assert run("topics", "create", "sensor-temp").status == 0
    assert run("topics", "create", "my-sensor").status == 0
    assert complete("headgate topics describe sens", 3) == ["sensor-temp"]
    assert complete("headgate tail sens", 2) == ["sensor-temp"]


def test_a_node_out_of_reach_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_URL", "http://127.0.0.1:1")
    assert complete("headgate topics describe sens", 3) == []
