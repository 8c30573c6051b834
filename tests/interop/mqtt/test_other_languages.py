"""Stock clients outside Python, unmodified: mqtt.js, HiveMQ's Java client, mosquitto_pub/_sub."""

import json
from collections.abc import Iterator

import pytest

from gateway.testing.process import Program
from tests.interop.mqtt.programs.link import V3_1, V3_1_1, V5
from tests.interop.mqtt.scenario import expected
from tests.support.mqtt_target import Target
from tests.support.mqtt_toolchain import java_classpath, node_program
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("mqtt-interop")]

DONE_S_MAX = 180
SEEN_S_MAX = 90
NAMES = {V3_1: "mqttv31", V3_1_1: "mqttv311", V5: "mqttv5"}


def seen_by(*command: str) -> dict[str, object]:
    program = Program(command, merge_errors=False)
    lines = program.finish(within_s=DONE_S_MAX)
    seen: dict[str, object] = json.loads(lines[-1])
    return seen


@pytest.mark.node
@pytest.mark.parametrize(
    ("version", "is_websocket"),
    [(V3_1, False), (V3_1_1, False), (V5, False), (V3_1_1, True), (V5, True)],
    ids=["3.1", "3.1.1", "5.0", "3.1.1-websocket", "5.0-websocket"],
)
def test_mqtt_js_sees_what_it_should(
    target: Target,
    stem: str,
    version: int,
    is_websocket: bool,  # noqa: FBT001
) -> None:
    url = f"mqtt://127.0.0.1:{target.port}"
    if is_websocket:
        url = f"ws://127.0.0.1:{target.websocket_port}{target.websocket_path}"

    seen = seen_by("node", str(node_program()), url, str(version), stem)

    without = []
    if version == V3_1:  # its CONNACK has no such bit
        seen.pop("session present")
        without = ["session present"]
    wanted = expected(version, *without)
    if version == V5:  # user properties are an object there: equal names come together
        assert isinstance(wanted["properties"], list)
        wanted["properties"] = [*wanted["properties"][:3], sorted(wanted["properties"][3])]
        found = seen["properties"]
        assert isinstance(found, list)
        found[3] = sorted(found[3])
    assert seen == wanted


@pytest.mark.java
@pytest.mark.parametrize("version", [V3_1_1, V5], ids=["3.1.1", "5.0"])
def test_hivemqs_client_sees_what_it_should(target: Target, stem: str, version: int) -> None:
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", java_classpath(), "MqttInterop"]

    seen = seen_by(*java, str(target.port), str(version), stem)

    without = ["identifier"] if version == V5 else ["will"]
    assert seen == expected(version, *without)


class MosquittoTools:
    """mosquitto_pub and mosquitto_sub of one protocol version."""

    def __init__(self, target: Target, version: int) -> None:
        self.place = ["-h", "127.0.0.1", "-p", str(target.port), "-V", NAMES[version]]
        self.running: list[Program] = []

    def publish(self, *arguments: str) -> None:
        """Run mosquitto_pub to its end."""
        Program(["mosquitto_pub", *self.place, *arguments]).finish(within_s=SEEN_S_MAX)

    def subscribe(self, *arguments: str, debug: bool = True) -> Program:
        """Start mosquitto_sub and return when it is subscribed."""
        program = self.start("mosquitto_sub", *(["-d"] if debug else []), *arguments)
        if debug:
            program.wait_for_line("SUBACK", within_s=SEEN_S_MAX)
        return program

    def start(self, name: str, *arguments: str) -> Program:
        """Start one of the two and return at once."""
        program = Program(["stdbuf", "-oL", name, *self.place, *arguments])
        self.running.append(program)
        return program


@pytest.fixture(params=[V3_1, V3_1_1, V5], ids=["3.1", "3.1.1", "5.0"])
def tools(request: pytest.FixtureRequest, target: Target) -> Iterator[MosquittoTools]:
    """The two programs; what runs is ended after the test."""
    tools = MosquittoTools(target, request.param)
    yield tools
    for program in tools.running:
        program.kill()


def printed(program: Program, count: int) -> list[str]:
    """Return the lines that the format ``> ...`` printed."""

    def found() -> list[str]:
        return [line for line in list(program.lines) if line.startswith("> ")]

    program.wait_for(lambda: len(found()) >= count, within_s=SEEN_S_MAX, what="messages")
    return found()


@pytest.mark.mosquitto
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquitto_sub_gets_what_mosquitto_pub_sends(
    tools: MosquittoTools, stem: str, qos: str
) -> None:
    program = tools.subscribe("-q", "2", "-t", f"{stem}/#", "-F", "> %t %q %r %p")
    tools.publish("-q", qos, "-t", f"{stem}/a", "-m", "hello")
    assert printed(program, 1) == [f"> {stem}/a {qos} 0 hello"]


@pytest.mark.mosquitto
def test_mosquitto_sub_gets_what_is_retained(tools: MosquittoTools, stem: str) -> None:
    tools.publish("-r", "-q", "1", "-t", stem, "-m", "kept")
    program = tools.subscribe("-t", stem, "-F", "> %r %p")
    assert printed(program, 1) == ["> 1 kept"]
    tools.publish("-r", "-n", "-t", stem)

    again = tools.subscribe("-t", f"{stem}/#", "-F", "> %p")
    tools.publish("-q", "1", "-t", f"{stem}/end", "-m", "end")
    assert printed(again, 1) == ["> end"]


@pytest.mark.mosquitto
def test_a_killed_mosquitto_sub_leaves_its_will(tools: MosquittoTools, stem: str) -> None:
    watcher = tools.subscribe("-t", f"{stem}/will", "-F", "> %p")
    mortal = tools.subscribe(
        "-t", f"{stem}/x", "--will-topic", f"{stem}/will", "--will-payload", "gone"
    )
    mortal.kill()
    assert printed(watcher, 1) == ["> gone"]


@pytest.mark.mosquitto
def test_mosquitto_sub_returns_to_its_session(tools: MosquittoTools, stem: str) -> None:
    keep = ["-c", "-i", stem, "-q", "1", "-t", f"{stem}/k", "-F", "> %p"]
    if "mqttv5" in tools.place:
        keep += ["-x", "300"]
    tools.subscribe(*keep, "-E").finish(within_s=SEEN_S_MAX)
    for payload in ("one", "two"):
        tools.publish("-q", "1", "-t", f"{stem}/k", "-m", payload)
    assert printed(tools.subscribe(*keep), 2) == ["> one", "> two"]


@pytest.mark.mosquitto
def test_the_sys_tree_tells_of_the_broker(tools: MosquittoTools) -> None:
    program = tools.subscribe("-t", "$SYS/#", "-F", "> %t %p")

    def topics() -> set[str]:
        return {line.split()[1] for line in list(program.lines) if line.startswith("> ")}

    wanted = {
        f"$SYS/broker/{name}"
        for name in (
            "version", "uptime", "clients/connected", "clients/total", "messages/received",
            "messages/sent", "publish/messages/received", "publish/messages/sent",
            "bytes/received", "bytes/sent", "retained messages/count", "subscriptions/count",
        )
    }  # fmt: skip
    split = {name.split()[0] for name in wanted}  # one name has a blank
    wait_until(lambda: topics() >= split, within_s=SEEN_S_MAX, what="the $SYS tree")


@pytest.mark.mosquitto
def test_mosquitto_pub_sends_properties(target: Target, stem: str) -> None:
    tools = MosquittoTools(target, V5)
    program = tools.subscribe("-t", stem, "-F", "> %C|%R|%D|%P|%p")
    properties = [
        *("-D", "publish", "content-type", "text/plain"),
        *("-D", "publish", "response-topic", "answers"),
        *("-D", "publish", "correlation-data", "c1"),
        *("-D", "publish", "user-property", "b", "1"),
        *("-D", "publish", "user-property", "a", "2"),
    ]
    tools.publish("-t", stem, "-m", "x", *properties)
    try:
        assert printed(program, 1) == ["> text/plain|answers|c1|b:1 a:2|x"]
    finally:
        program.kill()
