"""Amazon's clients outside Python, unmodified: the SDKs for JavaScript and Java, JMS on SQS."""

import json
from typing import Any

import pytest

from gateway.testing.process import Program
from tests.interop.sqs.steps import EXPECTED
from tests.support.sqs_target import Target, skip_what_the_peer_lacks, what_the_peer_lacks
from tests.support.sqs_toolchain import java_classpath, node_program

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("sqs-interop")]

DONE_S_MAX = 300
STEPS = [
    "standard",
    "long polling",
    "visibility",
    "dead letters",
    "batches",
    "message attributes",
    "one mebibyte",
    "tags",
    "fifo",
    "deduplication",
    "deleted queue",
]
JMS = {
    "text": ["hello \u2603", True, "A"],
    "bytes": "00ff10",
    "object": "[1, 2]",
    "properties": ["text", 7, True, 1.5],
    "redelivered": [False, True, 2],
    "listener": ["0", "1", "2"],
    "groups": ["0", "1", "2", "g"],
}


def seen_by(target: Target, stem: str, *command: str) -> dict[str, Any]:
    """Run a program to its end and return the object that it prints last."""
    at = target.endpoint
    program = Program(
        [*command, at.url, at.region, at.key_id, at.secret, stem], merge_errors=False
    )
    seen: dict[str, Any] = json.loads(program.finish(within_s=DONE_S_MAX)[-1])
    return seen


def judge(seen: dict[str, Any]) -> None:
    """Check that all steps show the expected results, except for known gaps of a peer."""
    assert sorted(seen) == sorted(STEPS)
    judged = [step for step in STEPS if not what_the_peer_lacks(step)]
    assert {step: seen[step] for step in judged} == {step: EXPECTED[step] for step in judged}


def java(name: str) -> list[str]:
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", java_classpath(), name]


@pytest.mark.node
def test_the_sdk_for_javascript_sees_what_it_should(target: Target, stem: str) -> None:
    judge(seen_by(target, stem, "node", str(node_program())))


@pytest.mark.java
def test_the_sdk_for_java_sees_what_it_should(target: Target, stem: str) -> None:
    judge(seen_by(target, stem, *java("SqsInterop")))


@pytest.mark.java
def test_jms_on_sqs_sees_what_it_should(target: Target, stem: str) -> None:
    skip_what_the_peer_lacks("jms")
    assert seen_by(target, stem, *java("JmsInterop")) == JMS
