"""``send`` and ``tail``, ``queues send`` and ``peek``, against a running node."""

import io
import json
import os
import subprocess
import sys

import pytest

from gateway.cli.send import batches
from tests.cli.conftest import Run
from tests.support.gateway import ROOT, Gateway


@pytest.fixture(autouse=True)
def _of_the_node(node: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_NODE__DATA_DIR", str(node.data_dir))


def values(run: Run, *arguments: str) -> list[str | None]:
    """Return the values that ``tail --json`` prints, a line of JSON each."""
    return [
        json.loads(line)["value"] for line in run("tail", "--json", *arguments).out.splitlines()
    ]


def test_a_record_goes_in_and_comes_out(run: Run) -> None:
    sent = run("send", "greetings", "hello", "-k", "user-7", "-H", "lang=en", "--create")
    assert (sent.status, sent.out) == (0, "sent to greetings: partition 0, offset 0\n")
    (line,) = run("tail", "greetings").out.splitlines()
    assert line.split("  ")[1:] == ["0/0", "user-7", "hello", "lang=en"]


def test_lines_of_standard_input_are_records(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"line {n}\n" for n in range(1_200))))
    sent = run("send", "lines", "--create")
    assert sent.out == "sent 1,200 to lines, last partition 0, offset 1199\n"
    assert values(run, "lines", "-n", "2") == ["line 1198", "line 1199"]
    assert values(run, "lines", "--from", "5", "-n", "1") == ["line 5"]
    assert values(run, "lines", "--from", "oldest", "-n", "1") == ["line 0"]
    assert values(run, "lines", "--contains", "line 7", "-n", "1") == ["line 799"]


def test_the_newest_of_several_partitions_are_the_last_by_time(run: Run) -> None:
    assert run("topics", "create", "wide", "-p", "3").status == 0
    for number in range(6):
        assert run("send", "wide", str(number), "--partition", str(number % 3)).status == 0
    assert values(run, "wide", "-n", "4") == ["2", "3", "4", "5"]
    assert values(run, "wide", "--partition", "1") == ["1", "4"]


def test_an_empty_topic_says_what_to_do(run: Run) -> None:
    assert run("topics", "create", "empty").status == 0
    done = run("tail", "empty")
    assert (done.status, done.out) == (0, "")
    assert done.err == "no record to show; send one: headgate send empty hello\n"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("send", "missing", "hello"), 1),
        (("tail", "missing"), 1),
        (("send", "missing", "hello", "-H", "no value"), 2),
        (("send", "missing", "hello", "-k", "0xzz"), 2),
        (("tail", "missing", "--from", "some day"), 2),
        (("queues", "send", "missing", "hello"), 1),
    ],
)
def test_what_cannot_be_done_is_said(run: Run, arguments: tuple[str, ...], status: int) -> None:
    done = run(*arguments)
    assert (done.status, done.out) == (status, "")


def test_follow_prints_what_comes(node: Gateway, run: Run) -> None:
    assert run("topics", "create", "live").status == 0
    assert run("send", "live", "before").status == 0
    command = [sys.executable, "-m", "gateway", "tail", "live", "--follow", "--json"]
    environment = {**os.environ, "HEADGATE_NODE__DATA_DIR": str(node.data_dir)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        try:
            assert json.loads(following.stdout.readline())["value"] == "before"
            assert run("send", "live", "after").status == 0
            assert json.loads(following.stdout.readline())["value"] == "after"
        finally:
            following.kill()


def test_a_message_of_a_queue_is_shown_and_stays(run: Run) -> None:
    assert run("queues", "create", "work").status == 0
    assert run("queues", "send", "work", "do this", "-k", "a").status == 0
    (row,) = run("queues", "peek", "work", "--json").json
    assert (row["value"], row["key"], row["state"]) == ("do this", "a", "ready")
    shown = run("queues", "peek", "work").out.splitlines()
    assert shown[0].split() == ["place", "state", "age", "key", "value"]
    assert run("queues", "ls", "--json").json[0]["counts"]["ready"] == 1


def test_peek_says_how_many_more_there_are(run: Run) -> None:
    assert run("queues", "create", "more").status == 0
    for value in ("a", "b", "c"):
        assert run("queues", "send", "more", value).status == 0
    assert run("queues", "peek", "more", "-n", "2").err == "the oldest 2 of 3; -n shows more\n"


def test_batches_are_bounded_by_count_and_by_size() -> None:
    assert [len(one) for one in batches("x" for _ in range(1_001))] == [500, 500, 1]
    assert [len(one) for one in batches("x" * 200_000 for _ in range(3))] == [2, 1]
