"""Errors that are kept or passed on leave their traceback behind.

A traceback holds the frames that the error went through and those that called them, with all their
variables: the request, a batch, what it was decompressed to. An error that is stored in one of
these is a cycle, which only the collector frees, and in production it seldom runs.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("gateway", "adapters", "features", "storage_adapters", "console")
HELPER: Final = "as_value"

# What looks at an error and keeps nothing of it.
LOOKING: Final = {
    "str", "repr", "type", "isinstance",  # Python's own
    "code_of", "group_code_of", "transaction_code_of", "_code",
    "one_line", "_text", "judge", "note_refusal", "to_sqs_error",
    "_unavailable", "is_shortage", "public_text",
    "note", "refuse",  # of counters, the audit log, logins and outages: they log it or count it
    "failed_by", "_end",  # of a connection, of the disk cache: log it and close
    "_note_failure", "note_failure", "note_damage", "_on_failure",  # log it, and try again
}  # fmt: skip
# A bug of ours: it is raised again with its traceback, and the variable deleted.
EXEMPT: Final = {("gateway/coalescer.py", "fault = fault or raised")}


def kept_errors(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and statement of what stores, returns or passes on a caught error as it is."""
    for handler in ast.walk(ast.parse(source)):
        if isinstance(handler, ast.ExceptHandler) and handler.name:
            parents = {
                child: parent
                for parent in ast.walk(handler)
                for child in ast.iter_child_nodes(parent)
            }
            for node in parents:
                if (
                    isinstance(node, ast.Name)
                    and node.id == handler.name
                    and isinstance(node.ctx, ast.Load)
                    and _is_kept(node, parents)
                ):
                    yield node.lineno, ast.unparse(_statement(node, parents))


def _is_kept(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents[node]
    if isinstance(parent, ast.keyword):
        if parent.arg == "exc_info":
            return False
        parent = parents[parent]
    if isinstance(parent, ast.Attribute) or _is_text(node, parents):
        return False
    if isinstance(_statement(node, parents), ast.Raise):
        return False
    if isinstance(parent, ast.Call):
        called = parent.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return name != HELPER and name not in LOOKING
    return True


def _is_text(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    while not isinstance(node, ast.stmt):
        if isinstance(node, ast.FormattedValue):
            return True
        node = parents[node]
    return False


def _statement(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.AST:
    while not isinstance(node, ast.stmt):
        node = parents[node]
    return node


def test_errors_that_are_kept_have_no_traceback() -> None:
    found = [
        f"{path}:{line}: {statement}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, statement in kept_errors(path.read_text())
        if (str(path.relative_to(ROOT)), statement) not in EXEMPT
    ]

    assert found == [], f"wrap the error in gateway.errors.{HELPER}"


@pytest.mark.parametrize(
    "line",
    [
        "return error",
        "self.fault = error",
        "found = fault or error",
        "errors.append(error)",
        "yield (name, error)",
        "done(error)",
        "reply(Result(error=error))",
        "found = {'why': error}",
        "return _Wanted(want, None, error)",
    ],
)
def test_a_kept_error_is_found(line: str) -> None:
    source = f"def work():\n try:\n  go()\n except OSError as error:\n  {line}\n"

    assert list(kept_errors(source)) == [(5, line)]


@pytest.mark.parametrize(
    "line",
    [
        "raise",
        "raise Other(str(error)) from error",
        "return code_of(error)",
        "return as_value(error)",
        "done(as_value(error))",
        "text = f'no: {error}'",
        "log.error('no', exc_info=error)",
        "return error.code",
    ],
)
def test_what_only_looks_at_an_error_may(line: str) -> None:
    source = f"def work():\n try:\n  go()\n except OSError as error:\n  {line}\n"

    assert list(kept_errors(source)) == []
