"""Eclipse Mosquitto as Debian packages it: the peer of the MQTT benchmarks.

At its best: no limit of its own on what is queued or in flight, no delay of small packets, no
log of connections. It keeps nothing on disk unless ``persistent``, and syncs nothing then. With
``users``, who have passwords, nobody else gets in.
"""

import getpass
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from benchmarks.clients.mqtt_streams import MqttFault, open_socket
from gateway.testing.ports import free_port
from gateway.testing.process import Program
from tests.support.waiting import wait_until

_PACKAGE: Final = "mosquitto"
_READY_S_MAX: Final = 60.0
_CONFIG: Final = """\
listener {port} 127.0.0.1
{access}
max_inflight_messages 65535
max_queued_messages 0
set_tcp_nodelay true
connection_messages false
log_dest stderr
log_type error
user {user}
persistence {persistence}
persistence_location {folder}/
autosave_interval 0
"""


def find_mosquitto() -> str:
    """Return the program's path, or end this one: no figure without its peer."""
    found = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        sys.exit(f"mosquitto is missing: install {_PACKAGE}; no figure without its peer")
    return found


def mosquitto_version() -> str:
    """Return the version that it says it is."""
    done = subprocess.run([find_mosquitto(), "-h"], capture_output=True, text=True, check=False)
    return done.stdout.split()[2]


class Mosquitto:
    """One broker on a free port of 127.0.0.1."""

    def __init__(
        self,
        data_dir: Path,
        *,
        persistent: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._users = users or {}
        self.data_dir = data_dir
        self.mqtt_port = free_port()
        self.program: Program | None = None
        self._command = [find_mosquitto(), "-c", str(data_dir / "mosquitto.conf")]
        data_dir.mkdir(parents=True)
        (data_dir / "mosquitto.conf").write_text(
            _CONFIG.format(
                port=self.mqtt_port,
                user=getpass.getuser(),
                persistence=str(persistent).lower(),
                folder=data_dir,
                access=self._access(),
            )
        )

    def _access(self) -> str:
        if not self._users:
            return "allow_anonymous true"
        path = self.data_dir / "passwords"
        path.touch(mode=0o600)
        for name, password in self._users.items():
            subprocess.run(["mosquitto_passwd", "-b", path, name, password], check=True)
        return f"allow_anonymous false\npassword_file {path}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self.program is not None
        return self.program.pid

    def __enter__(self) -> Self:
        self.launch()
        wait_until(self.answers, within_s=_READY_S_MAX, what="Mosquitto is up")
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.program is not None:
            self.program.kill()

    def launch(self) -> None:
        """Start it and return at once."""
        self.program = Program(self._command)

    def stop(self) -> None:
        """End it as an operator would: it writes what it keeps."""
        assert self.program is not None
        self.program.stop(within_s=_READY_S_MAX)

    def answers(self) -> bool:
        """Say whether it takes a connection."""
        try:
            open_socket(self.mqtt_port, "probe").close()
        except ConnectionError:
            return False
        except MqttFault:
            return bool(self._users)  # it refuses the probe, which has no password
        return True
