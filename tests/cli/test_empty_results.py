"""Output of a list or a search without results, and the question before a removal."""

import io
import os

import pytest
from kafka import KafkaProducer

from tests.cli.conftest import Run
from tests.support.gateway import Gateway


@pytest.fixture(autouse=True)
def _of_the_node(node: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the node by its data directory, which the environment may name."""
    for name in [name for name in os.environ if name.startswith("HEADGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADGATE_NODE__DATA_DIR", str(node.data_dir))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topics", "ls"), "no topics; make one: headgate topics create NAME"),
        (("queues", "ls"), "no queues; make one: headgate queues create NAME"),
        (("groups", "ls"), "no groups"),
        (("dlq", "ls"), "no dead-letter queues"),
        (("clients", "ls"), "no clients are connected"),
        (("users", "ls"), "no users; add one: headgate users add NAME"),
        (("users", "keys", "list"), "no access keys"),
        (("rules", "ls"), "no rules"),
    ],
)
def test_an_empty_list_is_one_line_beside_the_output(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    done = run(*arguments)
    assert (done.status, done.out) == (0, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1
    assert run(*arguments, "--json").json == []


def test_a_search_without_a_hit_says_in_how_much(run: Run, node: Gateway) -> None:
    assert run("topics", "create", "notes").status == 0
    producer = KafkaProducer(bootstrap_servers=node.bootstrap)
    producer.send("notes", b"one", key=b"k1").get(30)
    producer.close()
    done = run("topics", "find", "notes", "--key", "k2")
    assert (done.status, done.out) == (0, "")
    assert done.err.startswith("no record matches; ")
    assert done.err.endswith(" bytes read\n")
    assert not done.err.startswith("no record matches; 0 bytes")
    found = run("topics", "find", "notes", "--key", "k1")
    assert (found.err, len(found.out.splitlines())) == ("", 2)
    run("topics", "delete", "notes", "--yes")


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "delete", "nosuch"),
        ("groups", "delete", "nosuch"),
        ("queues", "delete", "nosuch"),
        ("queues", "purge", "nosuch"),
        ("dlq", "purge", "nosuch"),
        ("users", "rm", "nosuch"),
        ("users", "keys", "remove", "nosuch"),
    ],
)
def test_what_is_not_there_is_not_asked_about(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.status, done.out) == (1, "")
    assert "nosuch" in done.err
    assert len(done.err.splitlines()) == 1


def test_the_question_says_what_would_be_lost(
    run: Run, node: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("topics", "create", "orders", "-p", "2").status == 0
    producer = KafkaProducer(bootstrap_servers=node.bootstrap)
    producer.send("orders", b"one").get(30)
    producer.close()
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = run("topics", "delete", "orders")
    assert asked.status == 1
    assert "2 partition(s), 1 record(s), " in asked.out
    assert [topic["name"] for topic in run("topics", "ls", "--json").json] == ["orders"]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run("topics", "delete", "orders").status == 0
    assert run("topics", "ls", "--json").json == []


def test_where_nobody_can_answer_the_option_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("topics", "create", "kept").status == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    done = run("topics", "delete", "kept")
    assert done.status == 1
    assert "--yes" in done.err
    assert run("topics", "delete", "kept", "--yes").status == 0
