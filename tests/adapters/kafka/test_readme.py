"""The tables of the README list the served APIs, and name tests that exist."""

import re
from pathlib import Path

from adapters.kafka.handlers import APIS

README = Path("adapters/kafka/README.md")
ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(
    r"\| (\d+) \| (\w+) \| (\d+)(?:-(\d+))? \| .*? \| (`[^`|]+`(?:, `[^`|]+`)*) \|\n"
)


def rows() -> list[tuple[str, ...]]:
    return ROW.findall((ROOT / README).read_text().replace("| |", "| - |"))


def test_every_api_has_its_row_with_its_versions() -> None:
    written = {
        (int(key), name, range(int(low), int(high or low) + 1))
        for key, name, low, high, _ in rows()
    }

    assert written == {(api.key, api.name, api.versions) for api in APIS.values()}


def test_every_test_that_is_named_is_there() -> None:
    here = Path(__file__).parent

    missing = [
        path
        for *_, paths in rows()
        for path in paths.strip("`").split("`, `")
        if not (ROOT / path if path.startswith("tests/") else here / path).exists()
    ]
    assert missing == []
