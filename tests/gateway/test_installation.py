"""The command that a hint names adds an extra to the installation that gives the hint."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.installation import install_command, installed_version
from tests.support.gateway import ROOT

WHEEL = "file:///tmp/headgate-7.1-py3-none-any.whl"


def told(tmp_path: Path, origin: object, installer: str, *, path: str) -> str:
    """Return what a process says for which this is the metadata of the installation."""
    info = tmp_path / "headgate-7.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: headgate\nVersion: 7.1\n")
    (info / "INSTALLER").write_text(f"{installer}\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    code = (
        "from gateway.installation import install_command, installed_version\n"
        "print(installed_version(), install_command('s3'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        (None, "'headgate[s3]'"),
        ({"url": "file:///src/h%20g", "dir_info": {"editable": True}}, "-e '/src/h g[s3]'"),
        ({"url": "file:///src/headgate", "dir_info": {}}, "'/src/headgate[s3]'"),
        ({"url": WHEEL, "archive_info": {}}, f"'headgate[s3] @ {WHEEL}'"),
        (
            {"url": "https://a.example/h", "vcs_info": {"vcs": "git", "commit_id": "12ab"}},
            "'headgate[s3] @ git+https://a.example/h@12ab'",
        ),
    ],
)
def test_the_hint_is_made_as_the_installation_was(
    tmp_path: Path, origin: object, what: str
) -> None:
    bin_folder = str(Path(sys.executable).parent)
    assert told(tmp_path, origin, "pip", path=bin_folder) == f"7.1 pip install {what}"


def test_an_environment_that_is_not_active_is_named(tmp_path: Path) -> None:
    expected = f"7.1 {sys.executable} -m pip install 'headgate[s3]'"
    assert told(tmp_path, None, "pip", path="/usr/bin") == expected


def test_what_uv_has_installed_uv_adds_to(tmp_path: Path) -> None:
    expected = f"7.1 uv pip install --python {sys.executable} 'headgate[s3]'"
    assert told(tmp_path, None, "uv", path="/usr/bin") == expected


def test_this_installation_has_a_version_and_a_hint() -> None:
    assert installed_version()
    assert "[bench]" in install_command("bench")
