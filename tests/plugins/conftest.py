"""The example package, installed as a third party's would be, and a gateway that has it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.lines_gateway import LinesGateway

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which pip has put headgate-lines, without any network."""
    target = tmp_path_factory.mktemp("site")
    options = ["--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check"]
    package = _ROOT / "examples" / "headgate_lines"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", *options, "--target", target, package],
        check=True,
        env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"},
    )
    return target


@pytest.fixture
def gateway(site: Path, tmp_path: Path) -> Iterator[LinesGateway]:
    """Return a gateway that speaks lines and keeps batches in a drawer; it is started."""
    started = LinesGateway(site, tmp_path)
    started.start()
    yield started
    started.close()
