"""Unmodified stock SQS clients work as with Amazon's service."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.interop.sqs.programs.client_api import Api
from tests.interop.sqs.programs.with_aiobotocore import Aiobotocore
from tests.interop.sqs.programs.with_boto3 import Boto3
from tests.interop.sqs.programs.with_cli import AwsCli
from tests.interop.sqs.programs.with_query import Query, QueryByGet
from tests.interop.sqs.steps import EXPECTED, STEPS
from tests.support.sqs_target import Target, skip_what_the_peer_lacks

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("sqs-interop"),
    # aiohttp's advice to aiobotocore about a mebibyte is their own affair.
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
]

MAKERS: dict[str, type[Api]] = {
    "boto3": Boto3,
    "query": Query,
    "query-get": QueryByGet,
    "aiobotocore": Aiobotocore,
    "cli": AwsCli,
}
# The CLI is a process per call, so it does few steps; a query string has no room for a mebibyte.
CLI_STEPS = {"standard", "batches", "system attributes", "tags"}
LEFT_OUT = {"cli": set(STEPS) - CLI_STEPS, "query-get": {"one mebibyte"}}
# Steps that wait for seconds: all clients do them at once.
WAITING = ("lease end", "delay")
CASES = [
    pytest.param(client, step, id=f"{client}-{step.replace(' ', '_')}")
    for client in MAKERS
    for step in STEPS
    if step not in LEFT_OUT.get(client, ())
]


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[str, Api]]:
    """Return a cache of clients, each made once."""
    made: dict[str, Api] = {}
    yield made
    for api in made.values():
        api.close()


@pytest.fixture(scope="module")
def waiting(target: Target) -> Iterator[dict[tuple[str, str], Future[Any]]]:
    """Start the steps that wait, each with a client of its own, and return their results."""
    cases = [
        (client, step)
        for step in WAITING
        for client in MAKERS
        if step not in LEFT_OUT.get(client, ())
    ]
    with ThreadPoolExecutor(len(cases)) as pool:
        yield {case: pool.submit(seen_alone, target, *case) for case in cases}


def seen_alone(target: Target, client: str, step: str) -> Any:
    """Do a step with a client of its own."""
    api = MAKERS[client](target.endpoint)
    try:
        return STEPS[step](api, f"w{uuid.uuid4().hex[:10]}")
    finally:
        api.close()


@pytest.fixture
def do(
    target: Target, clients: dict[str, Api], stem: str, request: pytest.FixtureRequest
) -> Callable[[str, str], Any]:
    """Return a function that does a client's step and returns its results."""

    def done(client: str, step: str) -> Any:
        if step in WAITING:
            return request.getfixturevalue("waiting")[client, step].result()
        if client not in clients:
            clients[client] = MAKERS[client](target.endpoint)
        return STEPS[step](clients[client], stem)

    return done


@pytest.mark.parametrize(("client", "step"), CASES)
def test_a_client_sees_what_it_should(
    do: Callable[[str, str], Any], client: str, step: str
) -> None:
    skip_what_the_peer_lacks(client, step)

    seen = do(client, step)

    assert seen == EXPECTED[step]
