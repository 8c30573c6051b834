"""docs/log-events.md and gateway/log_events.py list every event of the code."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gateway.log_events import CONFIG_WARNING, EVENT_NAMES, LIBRARY_MESSAGE

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "log-events.md"
FOLDERS = ("adapters", "console", "features", "gateway", "pipeline", "storage_adapters")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOGGERS = {"log", "_log", "logger"}
ROW = re.compile(r"^\| `([a-z0-9_.]+)` \| [a-z, ]+ \| (.+) \|$", re.MULTILINE)
# Words that are put together, or passed on: where, and what they come to.
PASSED_ON = {
    "storage_adapters/s3/outage.py": {"the bucket is away", "the bucket is back"},
    "gateway/auth/audit.py": {"audit", "login refused"},
    "gateway/logs.py": set(),  # CONFIG_WARNING and LIBRARY_MESSAGE
}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in LOGGERS
        ):
            yield node


@cache
def logged() -> dict[str, str]:
    """Return the words of all events, and a file that logs each."""
    found: dict[str, str] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            for call in calls(ast.parse(path.read_text())):
                words = call.args[0]
                if isinstance(words, ast.Constant) and isinstance(words.value, str):
                    found[words.value] = name
                else:
                    assert name in PASSED_ON, f"{name}:{call.lineno}: words are no constant"
    for name, texts in PASSED_ON.items():
        found |= dict.fromkeys(texts, name)
    return found


def test_every_event_has_a_name() -> None:
    missing = {text: name for text, name in logged().items() if text not in EVENT_NAMES}
    assert missing == {}, "name them in gateway/log_events.py and docs/log-events.md"


def test_every_name_is_of_an_event_and_of_one_only() -> None:
    assert sorted(EVENT_NAMES.keys() - logged().keys()) == []
    names = [*EVENT_NAMES.values(), CONFIG_WARNING, LIBRARY_MESSAGE]
    assert sorted(names) == sorted(set(names))
    assert all(re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+", name) for name in names)


def test_the_page_has_every_name_with_its_words() -> None:
    listed = dict(ROW.findall(PAGE.read_text()))
    for name in (CONFIG_WARNING, LIBRARY_MESSAGE):
        assert listed.pop(name)
    assert listed == {name: text for text, name in EVENT_NAMES.items()}
