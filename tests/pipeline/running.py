"""Jobs of ``headgate pipeline`` as a user runs them, in as few JVMs as will do.

A JVM takes longer to start than the jobs of tests take. So a job runs in this process and in the
Spark of the tests (``Jobs.run``); one that is to be killed is a process of its own, whose Spark is
still that of the tests (``Jobs.start``), or all its own (``alone``).
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest import mock

from gateway.cli import app, pipeline_options
from gateway.testing.process import Program
from tests.support.toolchain import ROOT
from tests.support.waiting import wait_until

if TYPE_CHECKING:  # the tests here are skipped where Java is missing, before Spark is imported
    from pyspark.sql import SparkSession

RUN_S_MAX: Final = 600  # of a hang; a busy machine is slow
_LOOK_AGAIN_S: Final = 0.05  # a look is a request or a query, and takes from what it waits for
# A JVM that ends soon is not worth optimizing for: half of what its start costs is saved.
QUICK_JAVA: Final = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class Done(NamedTuple):
    """Output and exit status of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the output of ``--json``, parsed."""
        assert self.status == 0, self.err
        return json.loads(self.out)


class Jobs:
    """Runs jobs in one Spark."""

    def __init__(self, session: "SparkSession") -> None:
        self._session = session

    def run(self, name: str, *arguments: object, env: Mapping[str, str] | None = None) -> Done:
        """Run a job to its end, in this process. ``env``: of it and of Spark's workers."""
        out, err = io.StringIO(), io.StringIO()
        given = env or {}
        with (
            mock.patch.dict(os.environ, given),
            mock.patch.dict(self._session.sparkContext.environment, given),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            borrowed(self._session),
        ):
            status = app.main(["pipeline", name, *map(str, arguments)])
        return Done(status, out.getvalue(), err.getvalue())

    def start(self, name: str, *arguments: object) -> Program:
        """Start a job as a process of its own; without an end of its own it is to be killed.

        What Spark still does for it goes on then; ``stop_tasks``, as the end of its JVM would.
        """
        found = self._session.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
        env = {_PORT: str(found.port), _SECRET: found.auth_token}
        return Program(
            [sys.executable, "-m", "tests.pipeline.attached", name, *map(str, arguments)],
            cwd=ROOT,
            env=env,
        )

    def stop_tasks(self) -> None:
        """End what Spark does, for whomever."""
        self._session.sparkContext.cancelAllJobs()


@contextlib.contextmanager
def borrowed(session: "SparkSession") -> Iterator[None]:
    """Let jobs of this process run in a session that is there, and goes on after them."""
    from pipeline.spark_session import one_line

    @contextlib.contextmanager
    def spark(*_: object, **__: object) -> Iterator["SparkSession"]:
        with one_line():
            yield session

    with mock.patch.object(pipeline_options, "spark", spark):
        yield


def alone_command(name: str, *arguments: object, master: str = "local[2]") -> list[str]:
    """Return the command line of a job that starts a Spark of its own."""
    job = [sys.executable, "-m", "gateway", "pipeline", name, *map(str, arguments)]
    return [*job, "--master", master]


def start_alone(name: str, *arguments: object) -> Program:
    """Start a job with a JVM of its own, which ends with it."""
    return Program(alone_command(name, *arguments), cwd=ROOT, env=QUICK_JAVA)


def run_alone(
    name: str,
    *arguments: object,
    env: Mapping[str, str] | None = None,
    master: str = "local[2]",
) -> Done:
    """Run a job with a JVM of its own to its end."""
    done = subprocess.run(
        alone_command(name, *arguments, master=master),
        cwd=ROOT,
        env={**os.environ, **QUICK_JAVA, **(env or {})},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def kill_when(program: Program, condition: Callable[[], bool], *, what: str) -> None:
    """Kill a job as soon as ``condition`` holds; it has to be at work then, and is gone after."""
    try:
        wait_until(
            lambda: not program.is_running or condition(),
            within_s=RUN_S_MAX,
            what=what,
            every_s=_LOOK_AGAIN_S,
        )
        assert program.is_running, program.tail()
    except TimeoutError as error:
        error.add_note(program.tail())
        raise
    finally:
        program.kill()


def at(data_dir: Path) -> str:
    """Return the option that says where a node's data are."""
    return f"--set=node.data_dir={data_dir}"
