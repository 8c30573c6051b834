"""End to end with real input: lines of this repository's files and history, out and back."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.toolchain import ROOT
from tests.support.topics import create_topic, fresh_name

pytestmark = pytest.mark.interop

PARTITIONS = 4
COMMITS_MAX = 200
IDLE_S_MAX = 90
HISTORY = "git log --patch"


def git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


def own_files() -> list[Path]:
    """Return the files tracked by git; in an unpacked archive, all that are not hidden."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").decode()
    if listed:
        return [ROOT / name for name in listed.split("\0") if (ROOT / name).is_file()]
    return [
        path
        for path in sorted(ROOT.rglob("*"))
        if path.is_file()
        and not any(part.startswith((".", "__")) for part in path.relative_to(ROOT).parts)
    ]


def sources() -> dict[str, bytes]:
    found = {str(path.relative_to(ROOT)): path.read_bytes() for path in own_files()}
    found[HISTORY] = git("log", "--patch", f"--max-count={COMMITS_MAX}")
    return {name: data for name, data in found.items() if data}


def produce(bootstrap: str, topic: str, texts: dict[str, bytes]) -> int:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
        }
    )
    count = 0
    for name, data in texts.items():
        for line in data.splitlines(keepends=True):
            while True:
                try:
                    producer.produce(topic, line, name)
                    break
                except BufferError:
                    producer.poll(1)
            count += 1
        producer.poll(0)
    assert producer.flush(60) == 0
    return count


def consume(bootstrap: str, topic: str, count: int) -> dict[str, bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": fresh_name("g"),
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: dict[str, list[bytes]] = {}
    while count > 0:
        messages = consumer.consume(min(count, 1_000), IDLE_S_MAX)
        assert messages, f"{count} lines did not come back"
        for message in messages:
            assert message.error() is None
            found.setdefault(message.key().decode(), []).append(message.value())
        count -= len(messages)
    consumer.close()
    return {name: b"".join(lines) for name, lines in found.items()}


def test_every_line_of_this_repository_comes_back(bootstrap: str) -> None:
    texts = sources()
    topic = create_topic(bootstrap, partitions=PARTITIONS)

    count = produce(bootstrap, topic, texts)
    found = consume(bootstrap, topic, count)

    assert found.keys() == texts.keys()
    assert [name for name in texts if found[name] != texts[name]] == []
