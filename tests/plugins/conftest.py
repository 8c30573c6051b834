"""An environment like a stranger's: this version and the examples, each from its wheel."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.toolchain import ROOT

LINES = ROOT / "examples" / "headgate_lines"
STOMP = ROOT / "examples" / "headgate_stomp"
EXAMPLES = (LINES, STOMP)
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
_OFFLINE = ("--no-index", "--no-build-isolation", "--no-deps")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a virtual environment, made without any network.

    Third-party packages are those of this environment; a ``.pth`` file within it, as that of an
    editable install of this tree, has no effect there.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    wheels = tmp_path_factory.mktemp("wheels")
    trees = map(str, (ROOT, *EXAMPLES))
    run(*_PIP, "wheel", *_OFFLINE, "--wheel-dir", str(wheels), *trees)
    packages = [str(wheel) for wheel in wheels.glob("*.whl")]
    run(*_PIP, "install", *_OFFLINE, "--target", str(site), *packages)
    return python


def run(*command: str) -> None:
    """Run a command to its end, which must be a good one."""
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
    subprocess.run(command, check=True, env=environment)
