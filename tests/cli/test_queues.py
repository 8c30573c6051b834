"""The commands about queues and dead letters, over a real node and with Kafka's own producer."""

import os
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.cli.conftest import Run
from tests.support.gateway import Gateway
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _of_the_node(node: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the node by its data directory, which the environment may name."""
    for name in [name for name in os.environ if name.startswith("HEADGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADGATE_NODE__DATA_DIR", str(node.data_dir))


def produce(node: Gateway, topic: str, *values: bytes, **headers: str) -> None:
    producer = KafkaProducer(bootstrap_servers=node.bootstrap)
    named = [(name.replace("_", "."), value.encode()) for name, value in headers.items()]
    for value in values:
        producer.send(topic, value, key=b"k1", headers=named).get(30)
    producer.close()


def test_the_life_of_a_queue(run: Run, node: Gateway) -> None:
    made = run("queues", "create", "work", "-p", "2", "lease_ms=60000", "order=fair")
    assert (made.status, made.out) == (0, "created work on 2 partition(s)\n")
    produce(node, "work", b"one", b"two")
    table = run("queues", "ls").out.splitlines()
    assert table[0].split() == [
        "name", "ready", "in", "flight", "delayed", "oldest", "order", "dead", "letters",
    ]  # fmt: skip
    (listed,) = run("queues", "ls", "--json").json
    assert listed["counts"] == {"ready": 2, "in_flight": 0, "delayed": 0}
    assert run("queues", "set", "work", "lease_ms=", "attempts_max=3").status == 0
    shown = [line.split() for line in run("queues", "show", "work").out.splitlines()]
    assert ["lease_ms", "30000", "(30s)"] in shown
    assert ["retention_ms", "-1", "(no", "end)"] in shown
    settings = run("queues", "show", "work", "--json").json["settings"]
    assert (settings["lease_ms"], settings["attempts_max"]) == (30_000, 3)
    assert run("queues", "purge", "work", "--yes").out == "purged work\n"
    assert run("queues", "show", "work", "--json").json["counts"]["ready"] == 0
    assert run("queues", "delete", "work", "--yes").out == "deleted work\n"
    assert run("queues", "ls", "--json").json == []
    assert run("topics", "ls", "--json").json == []


def test_a_queue_on_a_topic_that_is_there_leaves_it(run: Run, node: Gateway) -> None:
    assert run("topics", "create", "orders").status == 0
    produce(node, "orders", b"one")
    made = run("queues", "create", "orders", "--from-start")
    assert made.out == "created orders on 1 partition(s) of the topic that was there\n"
    assert run("queues", "create", "orders", "--group", "audit").status == 0
    table = run("queues", "ls").out.splitlines()
    assert [line.split()[:3] for line in table] == [
        ["name", "group", "ready"],
        ["orders", "@queue", "1"],
        ["orders", "audit", "0"],
    ]
    for group in ("@queue", "audit"):
        assert run("queues", "delete", "orders", "--group", group, "--yes").status == 0
    assert [topic["name"] for topic in run("topics", "ls", "--json").json] == ["orders"]
    assert run("topics", "delete", "orders", "--yes").status == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("queues", "set", "x"),
        ("queues", "create", "x", "lease_ms"),
        ("queues", "create", "x", "-p", "0"),
        ("dlq", "redrive", "x", "--rate", "0"),
        ("dlq", "show", "x", "--count", "0"),
    ],
)
def test_a_wrong_command_is_status_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).status == 2


def test_a_refusal_is_one_line_and_status_1(run: Run) -> None:
    for arguments in (
        ("queues", "show", "none"),
        ("queues", "create", "x", "lease_ms=-1"),
        ("queues", "create", "x", "lease=5"),
        ("dlq", "redrive", "none", "--yes"),
        ("dlq", "cancel", "none"),
    ):
        done = run(*arguments)
        assert (done.status, done.out, len(done.err.splitlines())) == (1, "", 1)


def test_dead_letters_are_grouped_by_reason_and_brought_back(run: Run, node: Gateway) -> None:
    assert run("queues", "create", "jobs-dead").status == 0
    assert run("queues", "create", "jobs", "dead_letter_topic=jobs-dead").status == 0
    said = {"dlq_source_topic": "jobs", "dlq_source_partition": "0", "dlq_source_offset": "7"}
    produce(node, "jobs-dead", b"a\nb" + b"c" * 100, dlq_reason="attempts", **said)
    produce(node, "jobs-dead", b"\xff", dlq_reason="expired", **said)
    produce(node, "jobs-dead", b"by\x1b[2Jhand", **said)

    table = run("dlq", "ls").out.splitlines()
    assert table[0].split() == ["name", "ready", "in", "flight", "oldest", "sources"]
    assert (table[1].split()[:3], table[1].split()[-1]) == (["jobs-dead", "3", "0"], "jobs")
    shown = run("dlq", "show", "jobs-dead").out
    titles = [line for line in shown.splitlines() if line.endswith("message(s)")]
    assert titles == [
        "attempts: 1 message(s)",
        "expired: 1 message(s)",
        "no reason given: 1 message(s)",
    ]
    assert shown.count("  jobs 0/7  ") == 3
    assert f"a b{'c' * 57}..." in shown
    assert "base64 /w==" in shown
    assert r"by\x1b[2Jhand" in shown, "what others write does not drive the terminal"
    limited = run("dlq", "show", "jobs-dead", "-n", "1").out
    assert limited.endswith("the oldest 1 of 3; --count shows more\n")
    assert len(run("dlq", "show", "jobs-dead", "--json").json["messages"]) == 3

    unknown = run("dlq", "redrive", "nobody")  # refused before it is asked about
    assert (unknown.status, unknown.out) == (1, "")
    begun = run("dlq", "redrive", "jobs-dead", "--yes")
    assert begun.out.startswith("moving 3 message(s) of jobs-dead")

    def ended() -> bool:
        redrive, *_ = run("dlq", "status", "jobs-dead", "--json").json
        return bool(redrive["status"] != "RUNNING")

    wait_until(ended, within_s=20, what="the redrive")
    assert "where each came from" in run("dlq", "status", "jobs-dead").out
    assert run("queues", "show", "jobs", "--json").json["counts"]["ready"] == 3
    produce(node, "jobs-dead", b"from nowhere")
    waited = run("dlq", "redrive", "jobs-dead", "--wait", "--yes")
    assert waited.out == "0 of 1 message(s) moved, 1 skipped\n"
    assert run("dlq", "status", "jobs-dead", "--json").json[0]["skipped"] == 1
    assert run("dlq", "purge", "jobs-dead", "--yes").status == 0
    assert run("dlq", "show", "jobs-dead").out == "jobs-dead holds no messages\n"


def test_queues_of_the_config_are_made_once_and_keep_what_they_were_given(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_NODE__DATA_DIR", str(tmp_path))
    queues = (
        '[{name = "work", partitions = 2, dead_letter_topic = "dead.fifo", order = "key"},'
        ' {name = "other"}]'
    )
    gateway = Gateway(tmp_path, {"queues": queues})
    with gateway:
        named = {queue["name"]: queue for queue in run("queues", "ls", "--json").json}
        assert sorted(named) == ["dead.fifo", "other", "work"]
        assert (named["work"]["partitions"], named["work"]["settings"]["order"]) == (2, "key")
        assert named["dead.fifo"]["settings"]["order"] == "key"
        assert run("queues", "set", "work", "lease_ms=1000").status == 0
        produce(gateway, "work", b"one")
    with gateway:
        again = run("queues", "show", "work", "--json").json
        assert (again["settings"]["lease_ms"], again["counts"]["ready"]) == (1_000, 1)
        assert len(run("queues", "ls", "--json").json) == 3
