"""A gateway of our own as a child process: started, killed, started again, stopped."""

import io
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final
from unittest.mock import patch
from weakref import WeakSet

from gateway.cli.app import main
from gateway.testing.gateway_process import GatewayProcess
from gateway.testing.ports import free_port
from gateway.testing.process import Program, ProgramFailed
from tests.support import s3_gateway

ROOT: Final = Path(__file__).resolve().parents[2]

LAUNCHED: Final[WeakSet["Gateway"]] = WeakSet()
"""Gateways of the running test: their logs are shown with its failure."""


class Gateway(GatewayProcess):
    """``python -m gateway serve`` of this tree, with Kafka at ``kafka_port``.

    ``settings`` are the keys of ``--set``. ``descriptors_max``: arguments of ``ulimit -n`` below
    which it is started. ``HEADGATE_TEST_STORAGE=s3`` puts its data into a bucket.
    """

    checkout: Path = ROOT
    """The tree whose code is served; another one needs an environment in its ``.venv``."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        descriptors_max: str = "",
    ) -> None:
        super().__init__(
            data_dir.parent,
            (),
            env={"PYTHONPATH": str(self.checkout), **(env or {})},
        )
        self.descriptors_max = descriptors_max
        self.data_dir = data_dir
        self.config_file = data_dir.with_name(f"{data_dir.name}.toml")
        self.kafka_port = free_port()
        self.settings |= {
            "node.data_dir": data_dir,
            "adapters.kafka.bind": f"127.0.0.1:{self.kafka_port}",
            **(settings or {}),
        }
        if s3_gateway.IS_ON:
            self.settings = s3_gateway.on_s3(self.settings, data_dir)
            self.env = {**s3_gateway.session_server().env, **self.env}

    @property
    def bootstrap(self) -> str:
        """Bootstrap address for Kafka clients."""
        return f"127.0.0.1:{self.kafka_port}"

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None:
            LAUNCHED.discard(self)  # it is shown here, whoever runs it
        super().__exit__(kind, *exc)

    def run_command(self, *arguments: str, typed: str = "", within_s: float = 60) -> list[str]:  # noqa: ARG002 - a bound of processes
        """Run ``headgate <arguments>`` in this process: to start one takes longer than most."""
        out, err = io.StringIO(), io.StringIO()
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            patch.object(sys, "stdin", io.StringIO(typed)),
            patch.dict(os.environ, self.env),
        ):
            status = main(arguments)
        if status != 0:
            msg = f"{arguments} ended with {status}\n{out.getvalue()}{err.getvalue()}"
            raise ProgramFailed(msg)
        return out.getvalue().splitlines()

    def launch(self) -> Program:
        """Start it and return at once, ready or not."""
        LAUNCHED.add(self)
        return super().launch()

    def _serve_command(self) -> Sequence[str]:
        assignments = [f"--set={key}={value}" for key, value in self.settings.items()]
        command = [*super()._serve_command(), *assignments]
        if self.checkout != ROOT:
            command[0] = str(self.checkout / ".venv/bin/python")
        if not self.descriptors_max:
            return command
        limited = f'ulimit {self.descriptors_max}; exec "$@"'
        return ["/bin/sh", "-c", limited, "sh", *command]

    def _config(self) -> Path:
        """Return a file that names the adapters, so that no other takes its usual port."""
        names = {key.split(".")[1] for key in self.settings if key.startswith("adapters.")}
        self.config_file.parent.mkdir(parents=True, exist_ok=True)
        self.config_file.write_text("".join(f"[adapters.{name}]\n" for name in sorted(names)))
        return self.config_file

    def _folder(self) -> Path:
        return self.checkout

    def _command(self, *arguments: str) -> Sequence[str]:
        return [sys.executable, "-m", "gateway", *arguments]
