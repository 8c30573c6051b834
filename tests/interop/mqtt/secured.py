"""A gateway whose listeners are secured, as the tests of security want it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.mqtt.programs.secure_paho import SecurePaho
from tests.support.certificates import make_certificate
from tests.support.gateway import ROOT, Gateway
from tests.support.mqtt_target import Target, gateway_target, port_of


@dataclass(frozen=True)
class Secured:
    """A gateway, the port of its second listener, and the authority that its peers trust."""

    gateway: Gateway
    target: Target
    tls_port: int
    authority: tuple[Path, Path]

    @property
    def ca(self) -> Path:
        """The file that clients are given."""
        return self.authority[0]

    def client(self, client_id: str, **more: Any) -> SecurePaho:
        """Return a paho client for the main listener, over TLS."""
        more = {"authority": self.ca, **more}
        return SecurePaho(self.target.port, client_id, **more)

    def machine(self, client_id: str, **more: Any) -> SecurePaho:
        """Return one for the listener that asks for certificates."""
        more = {"authority": self.ca, **more}
        return SecurePaho(self.tls_port, client_id, **more)

    def clients(self) -> dict[str, dict[str, Any]]:
        """Return what ``headgate clients ls`` shows, by client identifier."""
        lines = self.gateway.run_command(
            "clients", "ls", "--json", f"--set=node.data_dir={self.gateway.data_dir}"
        )
        return {row["client_id"]: row for row in json.loads("\n".join(lines))}


def add_user(data_dir: Path, name: str, password: str) -> None:
    """Add a user before the first start."""
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "gateway",
                "users",
                "add",
                name,
                "--password-stdin",
                "--no-administrator",
            ),
            *("--offline", "--set", f"node.data_dir={data_dir}"),
        ],
        cwd=ROOT,
        input=f"{password}\n".encode(),
        check=True,
        timeout=60,
    )


def tls(listener: str, authority: tuple[Path, Path]) -> dict[str, object]:
    cert, key = authority
    return {f"{listener}.tls_cert": cert, f"{listener}.tls_key": key}


def running(folder: Path, settings: dict[str, object]) -> Iterator[Secured]:
    """Run one with TLS on the second and the WebSocket listener, and what is set besides."""
    authority = make_certificate(folder)
    every = {
        "adapters.mqtt.tls.bind": "127.0.0.1:0",
        **tls("adapters.mqtt.tls", authority),
        **tls("adapters.mqtt.websocket", authority),
        **settings,
    }
    gateway = Gateway(folder / "data", every)
    with gateway_target(gateway) as target:
        yield Secured(gateway, target, port_of(gateway.lines, "mqtt-tls"), authority)
