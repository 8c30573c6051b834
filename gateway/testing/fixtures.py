"""Fixtures for pytest: ``pytest_plugins = ["gateway.testing.fixtures"]`` in a conftest.py."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from gateway.testing.gateway_process import GatewayProcess

StartGateway = Callable[..., GatewayProcess]


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[StartGateway]:
    """Start gateways that end with the test: ``start_gateway("lines", settings={...})``.

    Positional arguments are the adapters. See ``GatewayProcess``.
    """
    with contextlib.ExitStack() as stack:
        folders = (tmp_path / f"gateway-{number}" for number in range(1_000))

        def start(
            *adapters: str, settings: Mapping[str, object] | None = None
        ) -> GatewayProcess:
            return stack.enter_context(GatewayProcess(next(folders), adapters, settings))

        yield start
