"""Celery with a worker: chords, countdowns, retries, remote control and events over AMQP."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.testing.process import Program
from tests.support.amqp_target import AmqpTarget
from tests.support.gateway import ROOT

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("amqp-interop")]

READY_S_MAX = 180
APP = "tests.interop.amqp.programs.celery_app"
DRIVE = "tests.interop.amqp.programs.celery_drive"
ALL = {"add": "5", "event": "True", "countdown": "2", "retries": "2", "ping": "pong"}


SEND = f"""\
from {APP} import mark
for text, priority in [("low", 0), ("middle", 2), ("high", 5)]:
    mark.apply_async((text,), priority=priority)
"""


def environment(target: AmqpTarget, stem: str, backend: str, folder: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": str(ROOT),
        "PATH": os.environ["PATH"],
        "HEADGATE_TEST_BROKER": target.url.replace("%2F", "/"),
        "HEADGATE_TEST_QUEUE": stem,
        "HEADGATE_TEST_BACKEND": backend,
        "HEADGATE_TEST_FOLDER": str(folder),
    }


@contextmanager
def worker(env: dict[str, str]) -> Iterator[Program]:
    """Run a worker that does one task at a time."""
    options = ["--pool", "solo", "-l", "info", "-E"]
    program = Program(
        [sys.executable, "-m", "celery", "-A", APP, "worker", *options], cwd=ROOT, env=env
    )
    try:
        program.wait_for_line(" ready.", within_s=READY_S_MAX)
        yield program
    finally:
        program.kill()


def driven(env: dict[str, str], *arguments: str) -> dict[str, str]:
    """Return what the client of a worker saw."""
    lines = Program(
        [sys.executable, "-m", DRIVE, *arguments], cwd=ROOT, env=env, merge_errors=False
    ).finish(within_s=READY_S_MAX)
    steps = [line.split(" ", 2)[1:] for line in lines if line.startswith("> ")]
    return {name: value for name, value in steps}  # noqa: C416 - of pairs, which mypy sees


def test_worker_does_chords_retries_and_priorities(
    target: AmqpTarget, stem: str, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    env = environment(target, stem, f"file://{results}", tmp_path)
    Program([sys.executable, "-c", SEND], cwd=ROOT, env=env).finish(within_s=READY_S_MAX)
    with worker(env) as running:
        assert driven(env, "chords") == {**ALL, "chord": "12"}
        assert (tmp_path / "marks").read_text().split() == ["high", "middle", "low"]
        assert running.is_running


def test_results_come_by_reply_queues(target: AmqpTarget, stem: str, tmp_path: Path) -> None:
    env = environment(target, stem, "rpc://", tmp_path)
    with worker(env) as running:
        assert driven(env) == ALL
        assert running.is_running
