"""An environment like a stranger's: this version and the examples, each from its wheel."""

import os
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import files
from pathlib import Path

import pytest

from tests.support.toolchain import ROOT

LINES = ROOT / "examples" / "headgate_lines"
STOMP = ROOT / "examples" / "headgate_stomp"
EXAMPLES = (LINES, STOMP)
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
_OFFLINE = ("--no-index", "--no-build-isolation", "--no-deps")


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist of this tree, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    return folder


@pytest.fixture(scope="session")
def environment(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    run(*_PIP, "wheel", *_OFFLINE, "--wheel-dir", str(wheels), *map(str, EXAMPLES))
    packages = [str(wheel) for folder in (dist, wheels) for wheel in folder.glob("*.whl")]
    run(*_PIP, "install", *_OFFLINE, "--target", str(site), *packages)
    return python


@pytest.fixture(scope="session")
def installation(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel and what requirements.lock names, no more.

    What is locked is linked from this environment, so that nothing is downloaded.
    """
    folder = tmp_path_factory.mktemp("installation")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (wheel,) = dist.glob("*.whl")
    python = str(folder / "bin" / "python")
    run(*_PIP, "--python", python, "install", "--no-index", "--no-deps", str(wheel))
    (site,) = folder.glob("lib/python*/site-packages")
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    for name in locked:
        for part in {file.parts[0] for file in files(name) or ()} - {"..", "__pycache__"}:
            (site / part).symlink_to(Path(sysconfig.get_paths()["purelib"]) / part)
    return folder


def run(*command: str) -> None:
    """Run a command to its end, which must be a good one."""
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
    subprocess.run(command, check=True, env=environment)
