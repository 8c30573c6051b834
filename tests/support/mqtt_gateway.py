"""A gateway with an MQTT endpoint as a child process, for tests that kill and fill it."""

from collections.abc import Mapping
from pathlib import Path

from gateway.testing.ports import free_port
from tests.support.gateway import Gateway
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import V5, Prop

SESSION_EXPIRY_S = 3_600


class MqttGateway(Gateway):
    """A ``Gateway`` that MQTT clients reach at ``mqtt_port``, through all restarts."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object] | None = None,
        *,
        descriptors_max: str = "",
    ) -> None:
        self.mqtt_port = free_port()
        super().__init__(
            data_dir,
            {
                "adapters.mqtt.bind": f"127.0.0.1:{self.mqtt_port}",
                "adapters.mqtt.websocket.enabled": "false",
                "adapters.mqtt.sys_interval_s": 0,
                **(settings or {}),
            },
            descriptors_max=descriptors_max,
        )

    def client(self, *, version: int = V5) -> RawClient:
        """Open a connection; nothing has been said on it."""
        return RawClient(self.mqtt_port, version=version)

    def come_back(
        self, client_id: str, *, is_present: bool = True, version: int = V5
    ) -> RawClient:
        """Connect to a session that outlives its connections."""
        client = self.client(version=version)
        expiry = [(Prop.SESSION_EXPIRY, SESSION_EXPIRY_S)]
        answer = client.connect(client_id, clean=False, found=expiry)
        assert answer.session_present == is_present
        return client
