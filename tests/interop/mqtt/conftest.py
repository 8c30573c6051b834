"""The endpoints of the clients; see ``tests/support/mqtt_target.py``."""

import uuid
from collections.abc import Iterator

import pytest

from tests.support.mqtt_target import Target, running_target

collect_ignore_glob = ["programs/*"]


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Return the endpoints of the clients."""
    with running_target(tmp_path_factory.mktemp("mqtt-interop")) as running:
        yield running


@pytest.fixture
def stem() -> str:
    """Letters that begin the topics and client identifiers of this test alone."""
    return f"i{uuid.uuid4().hex[:10]}"
