"""The container image: its steps as the Dockerfile lists them, and its start contract as process 1.

No image is built here. The steps are read; the start script runs with the image's config.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.config.advice import check_exposure
from gateway.config.base import InvalidSettings
from gateway.config.loader import load_settings
from gateway.testing.ports import free_port
from gateway.testing.process import Program
from tests.support.gateway import ROOT

FOLDER = ROOT / "packaging" / "container"
START = FOLDER / "headgate-start"
CONFIG = FOLDER / "headgate.toml"
IS_PROCESS_1 = ("unshare", "--pid", "--fork", "--kill-child")


class Step(NamedTuple):
    """An instruction of the Dockerfile with the number of its stage."""

    stage: int
    name: str
    rest: str


def steps() -> list[Step]:
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)
    found: list[Step] = []
    stage = -1
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            name, rest = line.split(None, 1)
            stage += name == "FROM"
            found.append(Step(stage, name, rest))
    return found


def rest_of(name: str) -> list[str]:
    """Return the arguments of the instructions of a name, of the stage that is the image."""
    return [step.rest for step in steps() if step.name == name and step.stage == 1]


def binds() -> dict[str, str]:
    """Return the variables for each ``bind`` of the image's config, with its address."""
    found: dict[str, str] = {}

    def walk(table: Mapping[str, object], path: tuple[str, ...]) -> None:
        for key, value in table.items():
            if isinstance(value, dict):
                walk(value, (*path, key))
            elif key == "bind":
                found["HEADGATE_" + "__".join((*path, key)).upper()] = str(value)

    walk(tomllib.loads(CONFIG.read_text()), ())
    return found


def test_what_is_copied_is_there_and_not_ignored() -> None:
    lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    for step in steps():
        if step.name == "COPY" and "--from=" not in step.rest:
            *sources, _ = [word for word in shlex.split(step.rest) if not word.startswith("--")]
            for source in sources:
                assert (ROOT / source).exists(), step
                assert any(f"{source}/".startswith(f"{one}/") for one in kept), source


def test_every_package_of_the_wheel_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = {step.rest.split()[0] for step in steps() if step.name == "COPY"}
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) <= copied
    assert {project["project"]["readme"], *project["project"]["license-files"]} <= {
        word for step in steps() if step.name == "COPY" for word in step.rest.split()
    }


def test_locked_packages_are_installed_by_their_hashes() -> None:
    (install,) = [
        step.rest for step in steps() if "requirements.lock" in step.rest and step.name == "RUN"
    ]
    assert "--require-hashes" in install


def test_the_image_runs_without_root_on_a_volume() -> None:
    data_dir = tomllib.loads(CONFIG.read_text())["node"]["data_dir"]
    assert rest_of("USER") == ["10001:10001"]
    assert rest_of("VOLUME") == [data_dir]
    assert any(
        f"install -d -o 10001 -g 10001 -m 0700 {data_dir}" in one for one in rest_of("RUN")
    )
    assert rest_of("STOPSIGNAL") == ["SIGTERM"]


def test_the_image_exposes_the_ports_that_its_config_binds() -> None:
    (exposed,) = rest_of("EXPOSE")
    ports = {address.rsplit(":", 1)[1] for address in binds().values()}
    assert set(exposed.split()) == ports
    assert len(ports) == 6
    assert {address.rsplit(":", 1)[0] for address in binds().values()} == {"0.0.0.0"}  # noqa: S104


def test_every_listener_of_the_config_is_open_to_others_once_there_are_users() -> None:
    settings = load_settings(file=CONFIG)
    assert len(settings.adapters) == 4
    check_exposure(settings, users_configured=True)
    with pytest.raises(InvalidSettings, match="is open to others"):
        check_exposure(settings, users_configured=False)


def test_entry_point_and_health_check_are_no_shell_lines() -> None:
    (entry,) = rest_of("ENTRYPOINT")
    (health,) = rest_of("HEALTHCHECK")
    assert json.loads(entry) == [START.name]
    assert json.loads(health.split("CMD", 1)[1]) == ["headgate", "status"]


# --- the start contract


@pytest.fixture
def image(tmp_path: Path) -> dict[str, str]:
    """Return the image's environment; data and ports are the test's own."""
    command = tmp_path / "bin" / "headgate"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gateway "$@"\n')
    command.chmod(0o755)
    at = {name: f"127.0.0.1:{free_port()}" for name in binds()}
    at["HEADGATE_ADAPTERS__KAFKA__BIND"] = f"0.0.0.0:{free_port()}"
    return {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HEADGATE_CONFIG": str(CONFIG),
        "HEADGATE_NODE__DATA_DIR": str(tmp_path / "data"),
        "HEADGATE_SECRETS": str(tmp_path / "secrets"),
        **at,
    }


def run(image: dict[str, str], *command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **image}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def process_1() -> tuple[str, ...]:
    """Return the command that makes the next one process 1, as it is in a container."""
    tried = subprocess.run([*IS_PROCESS_1, "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip("this user may not make namespaces of processes")
    return IS_PROCESS_1


def test_without_users_a_node_in_a_container_refuses_to_start(image: dict[str, str]) -> None:
    done = run(image, START)
    assert done.returncode == 2
    assert "adapters.kafka.bind" in done.stderr
    assert "is open to others" in done.stderr


def test_a_password_that_cannot_be_read_is_said(image: dict[str, str]) -> None:
    done = run({**image, "HEADGATE_ADMIN_PASSWORD_FILE": "/no/such/file"}, START, "serve")
    assert done.returncode == 2
    assert "/no/such/file, the password of admin" in done.stderr


def test_other_commands_run_by_their_names(image: dict[str, str]) -> None:
    done = run(image, START, "check-config")
    assert (done.returncode, "kafka" in done.stdout) == (0, True)


def test_with_the_secret_it_serves_is_healthy_and_stops_as_process_1(
    image: dict[str, str], tmp_path: Path
) -> None:
    secret = tmp_path / "secrets" / "headgate-admin-password"
    secret.parent.mkdir()
    secret.write_text("long enough\n")
    node = Program([*process_1(), START], env=image)
    try:
        node.wait_for_line("ready pid=1", within_s=60)
        healthy = run(image, tmp_path / "bin" / "headgate", "status")
        users = run(image, START, "users", "ls")
        children = f"/proc/{node.pid}/task/{node.pid}/children"
        os.kill(int(Path(children).read_text().split()[0]), 15)
        status = node.ended(within_s=60)
    finally:
        if node.is_running:
            node.kill()
    assert (healthy.returncode, "login required" in healthy.stdout) == (0, True)
    assert "admin" in users.stdout
    assert status == 0, node.tail()
    assert run(image, tmp_path / "bin" / "headgate", "status").returncode == 1
