"""A gateway with an SQS endpoint as a child process, for clients and for tests that kill it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.testing.ports import free_port
from tests.interop.sqs.programs.client_api import Endpoint
from tests.support.gateway import Gateway

ACCOUNT: Final = "000000000000"


class SqsGateway(Gateway):
    """A ``Gateway`` that SQS and MQTT clients reach at their ports, through all restarts."""

    account = ACCOUNT

    def __init__(self, data_dir: Path, settings: Mapping[str, object] | None = None) -> None:
        self.sqs_port = free_port()
        self.mqtt_port = free_port()
        super().__init__(
            data_dir,
            {
                "adapters.sqs.bind": f"127.0.0.1:{self.sqs_port}",
                "adapters.mqtt.bind": f"127.0.0.1:{self.mqtt_port}",
                "adapters.mqtt.websocket.enabled": "false",
                **(settings or {}),
            },
        )

    @property
    def endpoint(self) -> Endpoint:
        """Address for clients with an unknown key, which are anonymous."""
        return Endpoint(f"http://127.0.0.1:{self.sqs_port}")

    def with_key(self, user: str) -> Endpoint:
        """Make an access key of a user; return the endpoint with it."""
        lines = self.run_command("users", "keys", "add", user, "--json", self._place)
        made = json.loads("\n".join(lines))
        return Endpoint(self.endpoint.url, key_id=made["key_id"], secret=made["secret"])

    def without_key(self, endpoint: Endpoint) -> None:
        """Remove an access key."""
        self.run_command("users", "keys", "remove", endpoint.key_id, "--yes", self._place)

    @property
    def _place(self) -> str:
        return f"--set=node.data_dir={self.data_dir}"
