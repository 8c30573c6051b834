"""Fixtures: the endpoint under test; see ``tests/support/sqs_target.py``."""

import uuid
from collections.abc import Iterator

import pytest

from tests.support.sqs_target import Target, running_target

collect_ignore_glob = ["programs/*"]


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Run the endpoint under test."""
    with running_target(tmp_path_factory.mktemp("sqs-interop")) as running:
        yield running


@pytest.fixture
def stem() -> str:
    """Return a prefix of queue names for this test alone."""
    return f"i{uuid.uuid4().hex[:10]}"
