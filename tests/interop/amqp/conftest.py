"""The endpoints of the clients; see ``tests/support/amqp_target.py``."""

import uuid
from collections.abc import Iterator

import pytest

from tests.support.amqp_target import AmqpTarget, running_amqp

collect_ignore_glob = ["programs/*"]


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpTarget]:
    """Return the endpoints of the clients."""
    with running_amqp(tmp_path_factory.mktemp("amqp-interop")) as running:
        yield running


@pytest.fixture
def stem() -> str:
    """Letters that begin the names of this test alone."""
    return f"i{uuid.uuid4().hex[:10]}"
