"""Celery with SQS as broker: tasks arrive, and tasks of a killed worker are done by the next.

Its worker receives through kombu's own asynchronous client (pycurl), its producer through boto3.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.testing.process import Program
from tests.support.gateway import ROOT
from tests.support.sqs_target import Target, skip_what_the_peer_lacks
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("sqs-interop")]

READY_S_MAX = 180
DONE_S_MAX = 180
TASKS = 12
HELD = 5
APP = "tests.interop.sqs.programs.celery_app"
SEND = f"""\
from {APP} import work
for number in range({TASKS}):
    work.delay(number, held=number == {HELD})
"""


@pytest.fixture
def env(target: Target, stem: str, tmp_path: Path) -> dict[str, str]:
    """Return the environment of the application."""
    at = target.endpoint
    os.mkfifo(tmp_path / "hold")
    return {
        "PYTHONPATH": str(ROOT),
        "HEADGATE_TEST_BROKER": f"sqs://{at.key_id}:{at.secret}@{urlsplit(at.url).netloc}//",
        "HEADGATE_TEST_QUEUE": stem,
        "HEADGATE_TEST_FOLDER": str(tmp_path),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def worker(env: dict[str, str]) -> Iterator[Program]:
    """Run a worker that does one task at a time."""
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        APP,
        "worker",
        "--pool",
        "solo",
        "-l",
        "info",
    ]
    program = Program(command, cwd=ROOT, env=env)
    try:
        program.wait_for_line(" ready.", within_s=READY_S_MAX)
        yield program
    finally:
        program.kill()


def marks(folder: Path, name: str) -> list[int]:
    """Return the numbers that tasks have left."""
    path = folder / name
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_a_killed_worker_loses_no_task(env: dict[str, str], tmp_path: Path) -> None:
    skip_what_the_peer_lacks("celery")
    Program([sys.executable, "-c", SEND], cwd=ROOT, env=env).finish(within_s=READY_S_MAX)

    with worker(env) as first:
        wait_until(
            lambda: HELD in marks(tmp_path, "begun"), within_s=DONE_S_MAX, what="the held task"
        )
        assert first.is_running
    assert HELD not in marks(tmp_path, "done")

    with worker(env) as second:
        wait_until(
            lambda: marks(tmp_path, "begun").count(HELD) > 1,
            within_s=DONE_S_MAX,
            what="the held task is begun again",
        )
        (tmp_path / "hold").write_bytes(b"go on")
        wait_until(
            lambda: set(marks(tmp_path, "done")) == set(range(TASKS)),
            within_s=DONE_S_MAX,
            what="all tasks are done",
        )
        assert second.is_running
