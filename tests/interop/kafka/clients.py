"""Stock clients behind four common operations; see ``programs/protocol.py``."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.testing.process import Program
from tests.interop.kafka.programs.protocol import (
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    Message,
    message_of,
)
from tests.support.toolchain import ROOT, franz_program, java_classpath

_VERB_S_MAX: Final = 240.0


@dataclass(frozen=True)
class Carries:
    """Parts of a record that a client can write."""

    null_headers: bool = True
    headers_and_timestamps: bool = True
    null_and_empty: bool = True


class Member:
    """A group member in a process of its own, so that it can be killed."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def _rows(self) -> list[dict[str, Any]]:
        found = list(self.program.lines)
        return [json.loads(line) for line in found if line.startswith("{")]

    @property
    def assigned(self) -> list[int]:
        """Partitions of the last assignment."""
        told = [row["assigned"] for row in self._rows() if "assigned" in row]
        return told[-1] if told else []

    @property
    def values(self) -> set[bytes | None]:
        """Values that the member has read."""
        return {message_of(row).value for row in self._rows() if "value" in row}


class KcatMember(Member):
    """A kcat member; its assignment is parsed from its messages."""

    @property
    def assigned(self) -> list[int]:
        """See ``Member``: "% Group g rebalanced (memberid m): assigned: t [0], t [3]"."""
        told = [line for line in list(self.program.lines) if " rebalanced (" in line]
        if not told or "assigned:" not in told[-1]:
            return []
        places = told[-1].split("assigned:")[1].split(",")
        return sorted(int(place.rsplit("[", 1)[1].rstrip("]")) for place in places)

    @property
    def values(self) -> set[bytes | None]:
        """See ``Member``."""
        return {
            row["payload"].encode() for row in self._rows() if row.get("payload") is not None
        }


class Client:
    """A client library in a program that implements the suite's protocol."""

    def __init__(
        self, name: str, command: Callable[[], Sequence[str]], carries: Carries | None = None
    ) -> None:
        self.name = name
        self.carries = carries or Carries()
        self._command = command

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[tuple[int, int]]:
        """Produce all messages; return the (partition, offset) of each acknowledgement."""
        options = ["--compression", compression, *(["--idempotent"] if idempotent else [])]
        lines = "\n".join(message.to_json() for message in messages)
        rows = self._run(["produce", *self._place(bootstrap, topic), *options], lines)
        return [(row["partition"], row["offset"]) for row in rows]

    def consume(
        self,
        bootstrap: str,
        topic: str,
        *,
        count: int,
        partitions: int = 1,
        from_ms: int | None = None,
    ) -> list[Message]:
        """Read ``count`` messages from the start, or of partition 0 from a time on."""
        options = ["--count", str(count), "--partitions", str(partitions)]
        if from_ms is not None:
            options += ["--from-ms", str(from_ms)]
        rows = self._run(["consume", *self._place(bootstrap, topic), *options])
        return [message_of(row) for row in rows]

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        """Start a group member."""
        verb = ["member", *self._place(bootstrap, topic), "--group", group]
        return Member(Program([*self._command(), *verb], cwd=ROOT, merge_errors=False))

    def admin(self, bootstrap: str, topic: str, group: str) -> dict[str, Any]:
        """Run the admin round trip; return the client's result of each step."""
        return self._run(["admin", *self._place(bootstrap, topic), "--group", group])[0]

    def _place(self, bootstrap: str, topic: str) -> list[str]:
        return ["--bootstrap", bootstrap, "--topic", topic]

    def _run(self, arguments: Sequence[str], stdin: str = "") -> list[dict[str, Any]]:
        lines = _output([*self._command(), *arguments], stdin)
        return [json.loads(line) for line in lines if line.startswith("{")]


class Kcat(Client):
    """kcat, run by its command line. It reads lines, so a record is a key and a text."""

    def __init__(self) -> None:
        lines_only = Carries(
            null_headers=False, headers_and_timestamps=False, null_and_empty=False
        )
        super().__init__("kcat", lambda: ["kcat"], lines_only)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[tuple[int, int]]:
        """See ``Client``; kcat does not print the offsets of produced records."""
        settings = [f"enable.idempotence={idempotent}".lower(), "topic.acks=-1"]
        for partition in sorted({message.partition or 0 for message in messages}):
            lines = "\n".join(
                f"{(message.key or b'').decode()}\t{(message.value or b'').decode()}"
                for message in messages
                if (message.partition or 0) == partition
            )
            _output(
                ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-K", "\t",
                 "-z", compression, *(f"-X{setting}" for setting in settings)],
                lines,
            )  # fmt: skip
        return []

    def consume(
        self,
        bootstrap: str,
        topic: str,
        *,
        count: int,
        partitions: int = 1,  # noqa: ARG002 - kcat reads them all by itself
        from_ms: int | None = None,
    ) -> list[Message]:
        """See ``Client``."""
        start = ["-o", "beginning"] if from_ms is None else ["-p", "0", "-o", f"s@{from_ms}"]
        command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-c", str(count), "-J", "-q"]
        rows = [json.loads(line) for line in _output([*command, *start])]
        return [_kcat_message(row) for row in rows]

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        """See ``Client``."""
        settings = [
            f"session.timeout.ms={SESSION_TIMEOUT_MS}",
            f"heartbeat.interval.ms={HEARTBEAT_MS}",
            "auto.offset.reset=earliest",
        ]
        command = ["kcat", "-b", bootstrap, "-J", "-u", *(f"-X{pair}" for pair in settings)]
        return KcatMember(Program([*command, "-G", group, topic]))


def _kcat_message(row: dict[str, Any]) -> Message:
    names_and_values = row.get("headers") or []
    pairs = zip(names_and_values[::2], names_and_values[1::2], strict=True)
    return Message(
        value=None if row["payload"] is None else row["payload"].encode(),
        key=None if row["key"] is None else row["key"].encode(),
        headers=tuple((name, None if text is None else text.encode()) for name, text in pairs),
        timestamp_ms=row["ts"],
        partition=row["partition"],
        offset=row["offset"],
    )


def _output(command: Sequence[str], stdin: str = "") -> list[str]:
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=_VERB_S_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stderr}"
    return done.stdout.splitlines()


def _python(name: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"tests.interop.kafka.programs.with_{name}"]


def with_abilities_of(message: Message, carries: Carries) -> Message:
    """Return the message without the parts that a client cannot write."""
    if not carries.headers_and_timestamps:
        message = replace(message, headers=(), timestamp_ms=None)
    if not carries.null_headers:
        message = replace(
            message, headers=tuple(pair for pair in message.headers if pair[1] is not None)
        )
    if not carries.null_and_empty:
        message = replace(message, key=message.key or b"k", value=message.value or b"v")
    return message


CONFLUENT: Final = Client("confluent", _python("confluent"))
AIOKAFKA: Final = Client("aiokafka", _python("aiokafka"))
KAFKA_PYTHON: Final = Client(
    "kafka-python", _python("kafka_python"), Carries(null_headers=False)
)
KCAT: Final = Kcat()
JAVA: Final = Client(
    "java", lambda: ["java", "-XX:TieredStopAtLevel=1", "-cp", java_classpath(), "Interop"]
)
FRANZ: Final = Client("franz-go", lambda: [str(franz_program())])
