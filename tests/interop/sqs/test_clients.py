"""Unmodified stock SQS clients work as with Amazon's service."""

from collections.abc import Iterator

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


@pytest.mark.parametrize(("client", "step"), CASES)
def test_a_client_sees_what_it_should(
    target: Target, clients: dict[str, Api], stem: str, client: str, step: str
) -> None:
    skip_what_the_peer_lacks(client, step)
    if client not in clients:
        clients[client] = MAKERS[client](target.endpoint)

    seen = STEPS[step](clients[client], stem)

    assert seen == EXPECTED[step]
