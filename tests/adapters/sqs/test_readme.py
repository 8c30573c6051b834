"""The README's tables are complete, and name existing tests that fit."""

import ast
import re
from functools import cache
from pathlib import Path

import botocore.session
import pytest

from adapters.sqs import errors
from adapters.sqs.errors import ErrorCode

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "adapters/sqs/README.md"
HERE = Path(__file__).parent
ROW = re.compile(r"\| ([^|]+?) \| ([^|]*?) ?\| ?(?:`([\w/]+\.py)` `(test_\w+)`)? ?\|")
MODEL = botocore.session.get_session().get_service_model("sqs")


def rows(title: str) -> dict[str, tuple[str, str, str]]:
    """Return (what, file, test) by what the first column of a section's table names."""
    [section] = README.read_text().split(f"\n## {title}\n")[1:]
    lines = section.split("\n## ")[0].splitlines()
    table = [ROW.fullmatch(line) for line in lines if line.startswith("| ")][1:]
    assert all(table), title
    found = [row.groups("") for row in table if row is not None]
    assert len({name for name, *_ in found}) == len(found)
    return {name: (what, file, test) for name, what, file, test in found}


@cache
def functions_of(file: str) -> dict[str, str]:
    """Return the text of a file's functions, with their decorators, by their names."""
    text = (HERE / file).read_text()
    lines = text.splitlines()
    return {
        node.name: "\n".join(
            lines[
                min(part.lineno for part in (node, *node.decorator_list)) - 1 : node.end_lineno
            ]
        )
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def codes() -> dict[str, ErrorCode]:
    """Return the error codes that can be answered, by the JSON protocol's names."""
    return {code.shape: code for code in vars(errors).values() if isinstance(code, ErrorCode)}


@pytest.mark.parametrize(
    "title", ["Operations", "Queue attributes", "Attributes of messages", "Errors"]
)
def test_every_test_that_is_named_is_there(title: str) -> None:
    for name, (what, file, test) in rows(title).items():
        if file:
            assert test in functions_of(file), (name, file, test)
        else:
            assert what.startswith("never"), name


def test_every_operation_has_a_row() -> None:
    assert list(rows("Operations")) == sorted(MODEL.operation_names)


def test_the_test_of_an_operation_calls_it() -> None:
    for name, (_, file, test) in rows("Operations").items():
        method = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        assert method in (HERE / file).read_text(), (name, test)


def test_every_queue_attribute_has_a_row() -> None:
    assert list(rows("Queue attributes")) == sorted(MODEL.shape_for("QueueAttributeName").enum)


def test_every_system_attribute_has_a_row() -> None:
    named = MODEL.shape_for("MessageSystemAttributeName").enum
    assert set(rows("Attributes of messages")) == {*named, "message attributes"}


@pytest.mark.parametrize("title", ["Queue attributes", "Attributes of messages"])
def test_the_tests_of_an_attribute_speak_of_it(title: str) -> None:
    for name, (_, file, test) in rows(title).items():
        word = "MessageAttributes" if name == "message attributes" else name
        assert word in (HERE / file).read_text(), (name, test)


def test_every_error_has_a_row() -> None:
    documented = {shape.name for shape in MODEL.error_shapes}
    assert list(rows("Errors")) == sorted(documented | codes().keys())


def test_the_test_of_an_error_names_it() -> None:
    known = codes()
    for name, (_, file, test) in rows("Errors").items():
        if file:
            text = functions_of(file)[test]
            assert name in text or known[name].query_code in text, (name, test)
