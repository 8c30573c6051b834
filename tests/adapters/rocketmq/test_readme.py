"""The tables of the README list the served requests, and name tests that exist."""

import re
from pathlib import Path

from adapters.rocketmq.handlers import BROKER_HANDLERS, NAMESERVER_HANDLERS
from adapters.rocketmq.remoting.wire import RequestCode

README = Path("adapters/rocketmq/README.md")
ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| (\d+) \| (\w+) \|.*\| `([^`|]+)` \|$", re.MULTILINE)
PATH = re.compile(r"`((?:tests/)?[\w/]+\.py)`")


def text() -> str:
    return (ROOT / README).read_text()


def test_every_request_has_its_row() -> None:
    broker, _, nameserver = text().partition("Of the name server:")
    for part, handlers in ((broker, BROKER_HANDLERS), (nameserver, NAMESERVER_HANDLERS)):
        written = [(int(code), name) for code, name, _ in ROW.findall(part)]
        assert sorted(written) == sorted((code, RequestCode(code).name) for code in handlers)


def test_every_test_that_is_named_is_there() -> None:
    here = Path(__file__).parent
    named = [path for path in PATH.findall(text()) if "test_" in path]
    assert named
    assert [
        path
        for path in named
        if not (ROOT / path if path.startswith("tests/") else here / path).exists()
    ] == []
