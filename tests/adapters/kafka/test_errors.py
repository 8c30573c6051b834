"""Every error of the gateway has a Kafka code that clients retry if the error is retriable."""

import inspect

import kio.schema.errors
import pytest

from adapters.kafka.errors import CODES, ErrorCode, code_of
from gateway import errors
from gateway.errors import GatewayError

EVERY_ERROR = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, GatewayError)
]


def test_codes_are_those_of_a_second_library() -> None:
    theirs = {code.value: code.name for code in kio.schema.errors.ErrorCode}

    assert {int(code): code.name.lower() for code in ErrorCode} == theirs


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_every_error_has_a_code(error: type[GatewayError]) -> None:
    # A setting is wrong at a start, before there is any client.
    assert error in CODES or error in {errors.StorageFull, errors.InvalidSettings}


@pytest.mark.parametrize("error", [e for e in EVERY_ERROR if e.retriable])
def test_a_retriable_error_becomes_a_retriable_code(error: type[GatewayError]) -> None:
    code = code_of(error())

    assert kio.schema.errors.ErrorCode(int(code)).retriable


def test_the_nearest_base_class_decides() -> None:
    class Odd(errors.MessageTooLarge):
        """A subclass without an entry in the table."""

    assert code_of(Odd()) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ("topic", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("group", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("transactional_id", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_a_refused_resource_decides_the_code(resource: str, code: ErrorCode) -> None:
    assert code_of(errors.Unauthorized("no", resource=resource)) is code
