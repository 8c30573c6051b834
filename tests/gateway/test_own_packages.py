"""A start with another distribution's packages in place of Headgate's is refused in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.own_packages import FIRST_WORDS, check_own_packages
from tests.support.toolchain import ROOT


def started(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with ``folder`` first on Python's path."""
    path = f"{folder}{os.pathsep}{ROOT}"
    return subprocess.run(
        [sys.executable, "-m", "gateway", "--version"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["adapters", "pipeline"])
def test_a_folder_of_the_same_name_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("import torch\n")
    done = started(tmp_path)
    assert done.returncode == 1
    assert f"not Headgate's own package: {name} ({tmp_path / name})" in done.stderr
    assert "python -m venv" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_one_it_starts(tmp_path: Path) -> None:
    done = started(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", FIRST_WORDS)
def test_files_that_another_distribution_has_overwritten_are_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_own_packages()
    words = {**FIRST_WORDS, name: b"# of another distribution"}
    monkeypatch.setattr("gateway.own_packages.FIRST_WORDS", words)
    with pytest.raises(SystemExit, match=f"own package: {name} "):
        check_own_packages()
