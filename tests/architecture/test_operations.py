"""docs/operations.md says what every metric means and names every command of the trade."""

import re
from pathlib import Path

import pytest

from tests.support.gateway import Gateway

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations.md"
EXPOSED = re.compile(r"^# TYPE (headgate_[a-z0-9_]+) ", re.MULTILINE)
ROW = re.compile(r"^\| `(headgate_[a-z0-9_]+)`[^|]*\| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


def test_every_metric_is_explained(tmp_path: Path) -> None:
    with Gateway(tmp_path) as gateway:
        exposed = set(EXPOSED.findall(gateway.http("/metrics")[1]))
    explained = {name for name, _, _ in ROW.findall(PAGE.read_text())}
    assert exposed
    assert sorted(exposed - explained) == []


def test_a_metric_says_what_it_counts_and_when_to_worry() -> None:
    rows = ROW.findall(PAGE.read_text())
    assert [name for name, says, worry in rows if not says.strip() or not worry.strip()] == []
    assert len({name for name, _, _ in rows}) == len(rows)


@pytest.mark.parametrize(
    "command",
    [
        "headgate backup", "headgate restore", "headgate log dump", "headgate log verify",
        "headgate recover-metadata", "headgate check-config",
    ],
)  # fmt: skip
def test_the_commands_of_an_operator_are_there(command: str) -> None:
    assert command in PAGE.read_text()


@pytest.mark.parametrize(
    "words", ["disk is full", "is damaged", "in use by process", "later version", "SIGTERM"]
)
def test_what_an_operator_reads_in_a_log_is_there(words: str) -> None:
    assert words in PAGE.read_text()
