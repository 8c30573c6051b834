"""The table of operations is botocore's model, and each operation has its handler."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from adapters.sqs import errors
from adapters.sqs.errors import ErrorCode
from adapters.sqs.handlers import HANDLERS
from adapters.sqs.http import operations
from adapters.sqs.http.operations import ERROR_SHAPES, OPERATIONS
from adapters.sqs.http.sts import GET_CALLER_IDENTITY

SCRIPT = Path(__file__).resolve().parents[4] / "scripts" / "sqs_operations.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sqs_operations", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_what_the_script_makes_of_the_model() -> None:
    pytest.importorskip("botocore")
    made: dict[str, object] = {}

    exec(script().generate(), made)  # noqa: S102 - our own script's output

    assert made["OPERATIONS"] == operations.OPERATIONS
    assert made["ERROR_SHAPES"] == operations.ERROR_SHAPES


def test_all_23_operations_have_a_handler() -> None:
    assert HANDLERS.keys() - {GET_CALLER_IDENTITY.name} == OPERATIONS.keys()
    assert len(OPERATIONS) == 23


def test_every_documented_error_can_be_said() -> None:
    """Errors of KMS are left out: the gateway has no KMS."""
    sayable = {code.shape for code in vars(errors).values() if isinstance(code, ErrorCode)}
    missing = {shape for shape in ERROR_SHAPES if not shape.startswith("Kms")} - sayable
    assert missing == set()
