"""The example's own tests pass from a copy outside of this tree, as in a stranger's repository."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.plugins.conftest import EXAMPLE

pytestmark = pytest.mark.xdist_group("plugins")  # they share an environment

_TESTS_S_MAX = 600
_ALONE = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTEST", "PYTHON", "COV"))
}


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example's tests only: its package is the installed one."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(EXAMPLE / name, folder)
    shutil.copytree(EXAMPLE / "tests", folder / "tests")
    return folder


def test_headgate_is_the_installed_one(environment: Path, copy: Path) -> None:
    asked = "import gateway, headgate_lines; print(gateway.__file__, headgate_lines.__file__)"
    done = subprocess.run(
        [environment, "-c", asked], cwd=copy, env=_ALONE, capture_output=True, check=True
    )
    paths = done.stdout.decode().split()
    assert [Path(path).is_relative_to(environment.parents[1]) for path in paths] == [True] * 2


@pytest.mark.parametrize(
    "file", sorted(path.name for path in (EXAMPLE / "tests").glob("test_*.py"))
)
def test_the_examples_tests_pass(environment: Path, copy: Path, file: str) -> None:
    done = subprocess.run(
        [environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{file}"],
        cwd=copy,
        env=_ALONE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_TESTS_S_MAX,
    )
    assert done.returncode == 0, done.stdout
    last = done.stdout.splitlines()[-1]
    assert "passed" in last, done.stdout
    assert "skipped" not in last, done.stdout
