"""The README's tables name every statement that a test names, and tests that are there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "adapters/mqtt/README.md"
CONFORMANCE = Path(__file__).parent / "conformance"
STATEMENT = re.compile(r"\| (\d[\d.]*-\d+) \| [^|]+ \| `(test_\w+\.py)` `(test_\w+)`")
NUMBER = re.compile(r"\d+(?:\.\d+){1,2}-\d+")
VERSIONS = ("5.0", "3.1.1")


def written(version: str) -> list[tuple[str, str, str]]:
    """Return (statement, file, test) of the table of one version."""
    [section] = README.read_text().split(f"statements of MQTT {version}\n")[1:]
    return STATEMENT.findall(section.split("\n## ")[0])


def conformance() -> Iterator[tuple[str, str, str]]:
    """Yield (file, test, docstring) of the conformance tests."""
    for path in sorted(CONFORMANCE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path.name, node.name, ast.get_docstring(node) or ""


def proven(docstring: str, version: str) -> set[str]:
    """Return the statements of one version that a docstring names."""
    parts = re.split(r"(?=\b(?:5\.0|3\.1\.1):)", docstring)
    return {
        number
        for part in parts
        if part.startswith(f"{version}:")
        for number in NUMBER.findall(part)
    }


def test_every_statement_has_a_row_with_a_test_that_names_it() -> None:
    named = {(file, test): docstring for file, test, docstring in conformance()}
    for version in VERSIONS:
        for number, file, test in written(version):
            assert number in proven(named[file, test], version), (version, number, test)


def test_every_statement_that_a_test_names_has_a_row() -> None:
    for version in VERSIONS:
        rows = [number for number, _, _ in written(version)]
        assert len(rows) == len(set(rows))
        named = {number for *_, text in conformance() for number in proven(text, version)}
        assert sorted(named - set(rows)) == []


def test_every_file_that_is_named_is_there() -> None:
    names = re.findall(r"`((?:conformance/|tests/)?[\w/]*test_\w+\.py)`", README.read_text())
    here = Path(__file__).parent
    missing = [
        name
        for name in names
        if not any((folder / name).exists() for folder in (ROOT, here, CONFORMANCE))
    ]
    assert missing == []
