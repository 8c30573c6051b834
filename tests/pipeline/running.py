"""Jobs of ``headgate pipeline`` as a user runs them: processes of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.toolchain import ROOT

RUN_S_MAX: Final = 150


class Done(NamedTuple):
    """What a command has printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed with ``--json``."""
        assert self.out, self.err
        return json.loads(self.out)


def run_job(
    name: str, data_dir: Path, *arguments: object, env: Mapping[str, str] | None = None
) -> Done:
    """Run a job to its end, in this machine's Spark."""
    command = [
        sys.executable, "-m", "gateway", "pipeline", name, f"--set=node.data_dir={data_dir}",
        "--master", "local[2]", *map(str, arguments),
    ]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)
