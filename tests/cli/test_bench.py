"""``headgate bench``: a short run against a real node."""

import sys

import pytest

from gateway.installation import install_command
from tests.cli.conftest import Run
from tests.support.gateway import Gateway


@pytest.fixture(autouse=True)
def _of_the_node(node: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_NODE__DATA_DIR", str(node.data_dir))


def test_it_prints_a_line_for_each_test_and_leaves_no_topic(run: Run) -> None:
    pytest.importorskip("confluent_kafka", reason="pip install 'headgate[bench]'")
    done = run("bench", "--seconds", "0.2", "--message-bytes", "100", "--json")
    assert done.status == 0, done.err
    rows = {row["test"]: row for row in done.json}
    assert list(rows) == ["produce", "consume", "one by one"]
    assert all(row["messages_per_s"] > 0 for row in rows.values())
    assert rows["produce"]["p50_ms"] <= rows["produce"]["p99_ms"]
    assert rows["consume"]["p50_ms"] is None
    assert run("topics", "ls", "--json").json == []


def test_without_the_extra_it_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    done = run("bench")
    assert done.status == 1
    assert install_command("bench") in done.err
