"""The examples' own tests pass from copies outside of this tree, as in a stranger's repository."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.plugins.conftest import EXAMPLES

pytestmark = pytest.mark.xdist_group("plugins")  # they share an environment

_TESTS_S_MAX = 1_800
_ALONE = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTEST", "PYTHON", "COV"))
}


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the examples' tests only: their packages are the installed ones."""
    folder = tmp_path_factory.mktemp("repositories")
    for example in EXAMPLES:
        copy = folder / example.name
        shutil.copytree(example / "tests", copy / "tests")
        for name in ("pyproject.toml", "conftest.py"):
            shutil.copy(example / name, copy)
    return folder


def test_headgate_is_the_installed_one(environment: Path, copies: Path) -> None:
    names = ["gateway", *(example.name for example in EXAMPLES)]
    asked = f"import {', '.join(names)}; print(*(m.__file__ for m in ({', '.join(names)})))"
    done = subprocess.run(
        [environment, "-c", asked], cwd=copies, env=_ALONE, capture_output=True, check=True
    )
    paths = done.stdout.decode().split()
    is_inside = [Path(path).is_relative_to(environment.parents[1]) for path in paths]
    assert is_inside == [True] * len(names)


@pytest.mark.timeout(_TESTS_S_MAX + 60)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_examples_tests_pass(environment: Path, copies: Path, example: Path) -> None:
    done = subprocess.run(
        [environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=copies / example.name,
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
