"""Prometheus as a child process, and its promtool: Debian's package has both."""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.testing.ports import free_port
from gateway.testing.process import Program


def need(tool: str) -> str:
    """Return the path of a tool; a missing one skips the test, and fails it with CI=true."""
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"{tool} is missing: install prometheus")
    return path


def promtool(*arguments: str) -> str:
    """Run promtool; return what it prints. Error: ``AssertionError`` with its words."""
    done = subprocess.run(
        [need("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


class Prometheus:
    """A running Prometheus, asked by HTTP."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:  # noqa: S310 - ours
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the result of an expression now. Error: ``AssertionError`` if it has one."""
        text = urllib.parse.urlencode({"query": expr})
        request = f"{self._url}/api/v1/query?{text}"
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - ours
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}: {error.read().decode()}") from error
        result: list[dict[str, Any]] = found["data"]["result"]
        return result


@contextmanager
def running(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes ``target`` each second."""
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        "scrape_configs:\n"
        f"  - {{job_name: headgate, static_configs: [{{targets: ['{target}']}}]}}\n"
    )
    command = [
        need("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    program = Program(command)
    try:
        yield Prometheus(port)
    finally:
        program.stop()
