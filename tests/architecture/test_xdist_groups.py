"""Tests of a group are on one worker: what a module or Spark needs begins once for all of them."""

import os

import pytest


@pytest.mark.xdist_group("together")
def test_the_scheduler_is_told_of_a_group(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        assert "PYTEST_XDIST_WORKER" not in os.environ, (
            "--dist loadgroup is what `make test` has"
        )
        return

    assert request.node.nodeid.endswith("@together")
