"""Plain words: a text that is not plain may only become rarer.

The dictionaries count, for each package, the texts that are still to be mended. A file that is
touched is mended; then its count is lowered here, and never raised again. A count that is lower
than the one here fails too, so that it is lowered in the same commit.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.lake.files import DATA_COLUMN

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "adapters/kafka",
    "adapters/mqtt",
    "adapters/rocketmq",
    "adapters/sqs",
    "benchmarks",
    "console",
    "examples",
    "features",
    "gateway",
    "pipeline",
    "pyspark_headgate",
    "scripts",
    "storage_adapters/formats",
    "storage_adapters/memory.py",
    "storage_adapters/s3",
    "storage_adapters/segment_log",
    "tests",
)
RIDDLE = re.compile(r"(who|whose|whom|what|which|of|where|when|why|how)\b", re.IGNORECASE)
PERSON = re.compile(
    r"(tell|nobody|somebody|everybody|anybody|whoever|whatever|it|he|she|they|those|that|there"
    r"|have|else|all (?:that|who))\b(?!['-])",
    re.IGNORECASE,
)
BYTES = re.compile("oct" + "et", re.IGNORECASE)
LINE_CHARS_MAX = 100

# Texts whose first line begins with a word of a riddle ("Who", "What", "Which", "Of", "How").
RIDDLES: dict[str, int] = {}
# Texts whose first line treats a program as a person, or begins with a pronoun ("Tell", "It",
# "Nobody", "Those", "There", "Have X done"): a verb or a noun is clearer.
PERSONS: dict[str, int] = {}
# Classes whose name another class of the same package has, too.
DOUBLES: dict[str, int] = {}
# Lines of a page that are wider than LINE_CHARS_MAX characters.
WIDE_LINES: dict[str, int] = {}


@cache
def modules(package: str) -> list[tuple[Path, ast.Module]]:
    place = ROOT / package
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    return [(path, ast.parse(path.read_text())) for path in files]


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of docstrings, of strings under assignments, and of descriptions.

    A description is the ``description`` of a config key or the ``help`` of an option.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""
            for above, below in pairwise(node.body):
                if isinstance(above, ast.Assign | ast.AnnAssign) and isinstance(
                    below, ast.Expr
                ):
                    yield below.lineno, string(below.value)
        elif isinstance(node, ast.keyword) and node.arg in {"description", "help"}:
            yield node.value.lineno, string(node.value)


def string(node: ast.expr) -> str:
    """Return a literal string without the white space around it; "" for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.strip()
    return ""


def beginning(words: re.Pattern[str], package: str) -> list[str]:
    """Return the places of texts that begin with such words."""
    return [
        f"{path.relative_to(ROOT)}:{line}"
        for path, tree in modules(package)
        for line, text in texts(tree)
        if words.match(text)
    ]


def doubles(package: str) -> list[str]:
    """Return the names that more than one class of the package has."""
    names = Counter(
        node.name
        for _, tree in modules(package)
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def pages() -> list[Path]:
    """Return the pages that people write; docs/benchmarks.md is made from figures."""
    return [
        *sorted({*(ROOT / "docs").rglob("*.md")} - {ROOT / "docs/benchmarks.md"}),
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "adapters").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


def wide_lines(page: Path) -> list[int]:
    """Return the numbers of the lines that are too wide; tables and code may be."""
    found, is_code = [], False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code
        is_free = is_code or line.startswith(("|", "    ", "!["))
        if not is_free and len(line) > LINE_CHARS_MAX:
            found.append(number)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_new_text_is_a_riddle(package: str) -> None:
    found = beginning(RIDDLE, package)
    assert len(found) == RIDDLES.get(package, 0), f"the baseline is another: {found}"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_new_text_begins_with_a_person(package: str) -> None:
    found = beginning(PERSON, package)
    assert len(found) == PERSONS.get(package, 0), f"the baseline is another: {found}"


@pytest.mark.parametrize("package", [one for one in PACKAGES if one != "tests"])
def test_no_new_class_name_stands_twice_in_a_package(package: str) -> None:
    found = doubles(package)
    assert len(found) == DOUBLES.get(package, 0), f"the baseline is another: {found}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_more_wide_lines(page: Path) -> None:
    found = wide_lines(page)
    name = str(page.relative_to(ROOT))
    assert len(found) == WIDE_LINES.get(name, 0), f"the baseline is another: lines {found}"


def test_bytes_are_called_bytes() -> None:
    """Find the other word in one line only: the name of a column of tables that users have."""
    suffixes = {".py", ".md", ".toml", ".html", ".json"}
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for folder in sorted({*(package.split("/")[0] for package in PACKAGES), "docs"})
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in suffixes
        for line in path.read_text().splitlines()
        if BYTES.search(line)
    ]
    assert found == [f'pipeline/lake/files.py: DATA_COLUMN: Final = "{DATA_COLUMN}"']
