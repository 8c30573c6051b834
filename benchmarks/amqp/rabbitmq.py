"""RabbitMQ as Debian packages it: the peer of the AMQP benchmarks, without any plug-in.

It runs without the service, on ports of its own of 127.0.0.1, with a port mapper (epmd) of its own.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from gateway.testing.ports import free_port
from gateway.testing.process import Program
from tests.support.amqp_raw import Closed, RawAmqp
from tests.support.waiting import wait_until

_PACKAGE: Final = "rabbitmq-server"
_READY_S_MAX: Final = 300.0
# The package's own script: the one on the search path changes to the service's user.
_SCRIPT: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_CONFIG: Final = """\
listeners.tcp.default = 127.0.0.1:{port}
log.console = false
log.file.level = error
"""


def find_rabbitmq() -> str:
    """Return the program's path, or end this one: no figure without its peer."""
    if not _SCRIPT.exists() or shutil.which("epmd") is None:
        sys.exit(f"RabbitMQ is missing: install {_PACKAGE}; no figure without its peer")
    return str(_SCRIPT)


def rabbitmq_version() -> str:
    """Return the package's version, and that of Erlang."""
    shown = [
        subprocess.run(
            ["dpkg-query", "--show", "--showformat=${Version}", package],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        for package in (_PACKAGE, "erlang-base")
    ]
    return f"{shown[0]} (Erlang {shown[1]})"


class RabbitMq:
    """One broker on a free port of 127.0.0.1; a restart keeps its port and its data."""

    def __init__(self, data_dir: Path) -> None:
        self.amqp_port = free_port()
        self.program: Program | None = None
        self._mapper: Program | None = None
        self._mapper_port = free_port()
        self._data_dir = data_dir
        data_dir.mkdir(parents=True)
        (data_dir / "rabbitmq.conf").write_text(_CONFIG.format(port=self.amqp_port))
        (data_dir / "enabled_plugins").write_text("[].\n")
        self._env = {
            "HOME": str(data_dir),
            "RABBITMQ_NODENAME": f"bench{self.amqp_port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.amqp_port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(data_dir / "data"),
            "RABBITMQ_LOG_BASE": str(data_dir / "log"),
            "RABBITMQ_PID_FILE": str(data_dir / "pid"),
            "RABBITMQ_CONFIG_FILE": str(data_dir / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(data_dir / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1}"
            ),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the broker, with its id
        }

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self.program is not None
        return self.program.pid

    def __enter__(self) -> Self:
        mapper = ["epmd", "-address", "127.0.0.1", "-port", str(self._mapper_port)]
        self._mapper = Program(mapper)
        try:
            self.launch()
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        for program in (self.program, self._mapper):
            if program is not None:
                program.kill()

    def launch(self) -> None:
        """Start it and return at once."""
        self.program = Program([find_rabbitmq()], env=self._env)

    def kill(self) -> None:
        """End it as a power switch would."""
        assert self.program is not None
        self.program.kill()

    def wait_ready(self) -> None:
        """Wait until a client can log in."""
        wait_until(self.answers, within_s=_READY_S_MAX, what="RabbitMQ is up")

    def answers(self) -> bool:
        """Whether it lets a client log in."""
        assert self.program is not None
        assert self.program.is_running, self.program.tail()
        try:
            client = RawAmqp(self.amqp_port)
        except OSError:
            return False
        try:
            client.open()
        except (Closed, OSError, AssertionError):  # refused while it recovers
            return False
        finally:
            client.close()
        return True
