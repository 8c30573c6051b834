"""AdapterContract with the gateway of this tree, wherever another is installed."""

from collections.abc import Mapping
from pathlib import Path

from gateway.testing.adapter import AdapterContract
from gateway.testing.gateway_process import GatewayProcess
from tests.support.toolchain import ROOT


class TreeAdapterContract(AdapterContract):
    """The suite for an adapter of this tree."""

    def new_gateway(self, folder: Path, settings: Mapping[str, object]) -> GatewayProcess:
        env = {"PYTHONPATH": str(ROOT)}
        return GatewayProcess(folder, [self.adapter], settings, env=env)
