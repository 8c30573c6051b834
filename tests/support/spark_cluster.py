"""A standalone Spark cluster on this machine, of the jars that pyspark brings."""

import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError

from gateway.testing.ports import free_port
from gateway.testing.process import Program
from tests.support.toolchain import ROOT
from tests.support.waiting import wait_until

HOST: Final = "127.0.0.1"
WORKERS: Final = 2
_READY_S_MAX: Final = 300.0
_PACKAGE: Final = "org.apache.spark.deploy"


@dataclass(frozen=True)
class Cluster:
    """A running cluster. ``master`` is what jobs are given."""

    master: str
    work_dirs: list[Path]

    def used(self) -> list[Path]:
        """Return the folders of the workers that have run executors."""
        return [path for path in self.work_dirs if list(path.glob("app-*"))]


@contextlib.contextmanager
def spark_cluster(folder: Path, *, env: Mapping[str, str]) -> Iterator[Cluster]:
    """Run a master and two workers of one core each until the block ends.

    ``env`` is added to the environment of all of it, executors too.
    """
    port, ui_port = free_port(), free_port()
    master = f"spark://{HOST}:{port}"
    work_dirs = [folder / f"worker-{number}" for number in range(WORKERS)]
    with contextlib.ExitStack() as programs:
        _run(programs, env, "master.Master", "--port", str(port), "--webui-port", str(ui_port))
        wait_until(
            lambda: _state(ui_port) is not None, within_s=_READY_S_MAX, what="a Spark master"
        )
        for work_dir in work_dirs:
            work_dir.mkdir()
            _run(
                programs, env, "worker.Worker", "--cores", "1", "--memory", "1g",
                "--work-dir", str(work_dir), "--webui-port", str(free_port()), master,
            )  # fmt: skip
        wait_until(
            lambda: (_state(ui_port) or {}).get("aliveworkers") == WORKERS,
            within_s=_READY_S_MAX,
            what="both workers at the master",
        )
        yield Cluster(master, work_dirs)


def environment() -> Mapping[str, str]:
    """Return what the cluster and its jobs run with: this Python, and this source as installed."""
    return {
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_DAEMON_MEMORY": "256m",
    }


def _run(
    programs: contextlib.ExitStack, env: Mapping[str, str], name: str, *arguments: str
) -> None:
    import pyspark  # the tests are skipped where Spark is missing, before this is called

    spark_class = str(Path(pyspark.__file__).parent / "bin/spark-class")
    command = [spark_class, f"{_PACKAGE}.{name}", "--host", HOST, *arguments]
    program = Program(command, env={**environment(), **env})
    programs.callback(program.stop)


def _state(ui_port: int) -> dict[str, Any] | None:
    """Return what the master says of itself, None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{ui_port}/json/", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
    except (URLError, OSError, ValueError):
        return None
    return found
