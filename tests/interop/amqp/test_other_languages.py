"""Stock clients outside Python, unmodified: Java, Spring AMQP, PerfTest, amqplib, amqp091-go."""

from pathlib import Path

import pytest

from gateway.testing.ports import free_port
from gateway.testing.process import Program
from tests.support.amqp_target import OWN, AmqpTarget
from tests.support.amqp_toolchain import go_program, java_classpath, node_program
from tests.support.gateway import Gateway

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("amqp-interop")]

DONE_S_MAX = 180
QUIET = Path(__file__).with_name("java") / "logback.xml"
JAVA = ["java", "-XX:TieredStopAtLevel=1", f"-Dlogback.configurationFile={QUIET}", "-cp"]
SEEN = {
    "confirmed": "1",
    "returned": "312 NO_ROUTE",
    "body": "hello",
    "headers": "a,5",
    "properties": "text/plain|c1|r1|m1|7",
    "redelivered": "true",
    "reply": "pong 7",
    "stream": "0=s0,1=s1,2=s2",
    "fault": "404",
}


def steps_of(lines: list[str]) -> dict[str, str]:
    """Return the steps that a program has printed."""
    return dict(line[2:].split(" ", 1) for line in lines if line.startswith("> "))


def seen_by(*command: str) -> dict[str, str]:
    return steps_of(Program(command, merge_errors=False).finish(within_s=DONE_S_MAX))


@pytest.mark.java
def test_rabbitmqs_java_client_sees_what_it_should(target: AmqpTarget, stem: str) -> None:
    command = [*JAVA, java_classpath(), "AmqpInterop", "scenario", str(target.port), stem]
    assert seen_by(*command) == {**SEEN, "tx": "1"}


@pytest.mark.java
def test_spring_amqp_sees_what_it_should(target: AmqpTarget, stem: str) -> None:
    command = [*JAVA, java_classpath(), "SpringInterop", str(target.port), stem]
    assert seen_by(*command) == {
        "declared": "-plain",
        "confirmed": "true",
        "returned": "NO_ROUTE true",
        "received": "hello|text/plain|5|7|a.b",
        "none": "null",
        "listened": "20 left 0",
        "by-hand": "false,true left 0",
        "retried": "012 left 0",
        "answered": "ping pong",
        "purged": "0",
        "deleted": "true",
    }


@pytest.mark.java
@pytest.mark.parametrize(
    "more",
    [("--confirm", "100", "--flag", "persistent"), ("--multi-ack-every", "50")],
    ids=["confirms", "multi-ack"],
)
def test_perftest_runs_to_its_end(target: AmqpTarget, stem: str, more: tuple[str, ...]) -> None:
    arguments = ["--uri", target.url, "--queue", stem, "--qos", "200"]
    counts = ["--pmessages", "2000", "--cmessages", "2000"]
    program = [
        *JAVA,
        java_classpath(),
        "com.rabbitmq.perf.PerfTest",
        *arguments,
        *counts,
        *more,
    ]
    lines = Program(program).finish(within_s=DONE_S_MAX)
    assert any("receiving rate avg" in line for line in lines)
    assert not [
        line for line in lines if "error" in line.lower() or "exception" in line.lower()
    ]


@pytest.mark.node
def test_amqplib_sees_what_it_should(target: AmqpTarget, stem: str) -> None:
    assert seen_by("node", str(node_program()), str(target.port), stem) == SEEN


@pytest.mark.go
def test_amqp091_go_sees_what_it_should(target: AmqpTarget, stem: str) -> None:
    assert seen_by(str(go_program()), str(target.port), stem) == {**SEEN, "tx": "1"}


@OWN
@pytest.mark.java
def test_java_client_recovers_its_topology_after_a_kill(stem: str, tmp_path: Path) -> None:
    port = free_port()
    with Gateway(tmp_path / "data", {"adapters.amqp.bind": f"127.0.0.1:{port}"}) as gateway:
        command = [*JAVA, java_classpath(), "AmqpInterop", "recover", str(port), stem]
        program = Program(command, merge_errors=False)
        try:
            program.wait_for_line("> ready", within_s=DONE_S_MAX)
            gateway.kill()
            gateway.restart()
            steps = steps_of(program.finish(within_s=DONE_S_MAX))
        finally:
            program.kill()
    assert steps == {
        "before": "durable before,named before",
        "ready": "now",
        "recovered": "recovered",
        "after": "durable after,named after",
    }
