"""The sdist and the wheel that is built from it: complete, and enough to run a node."""

import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from gateway.testing.gateway_process import GatewayProcess
from tests.support.toolchain import ROOT

pytestmark = pytest.mark.xdist_group("plugins")  # they share a build

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIG["project"]
PACKAGES: list[str] = CONFIG["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
FOR_BUILDERS = (
    "LICENSE", "Makefile", "README.md", "pyproject.toml", "requirements.lock",
    "requirements-dev.lock", "packaging/systemd/headgate.service", "scripts/make_sbom.py",
    "tests/conftest.py",
)  # fmt: skip


class Installed(GatewayProcess):
    """The ``headgate`` of an environment, far from this tree."""

    command = ""

    def _command(self, *arguments: str) -> Sequence[str]:
        return [self.command, *arguments, f"--config={self._config()}"]

    def _serve_command(self) -> Sequence[str]:
        return [self.command, "serve", f"--config={self._config()}"]


def tracked(package: str) -> set[str]:
    """Return the files of a package of this tree, without what Python and editors leave there."""
    found = (path for path in (ROOT / package).rglob("*") if path.is_file())
    kept = (path for path in found if path.suffix != ".pyc")
    return {path.relative_to(ROOT).as_posix() for path in kept}


def test_the_wheel_has_every_file_of_its_packages_and_no_other(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == set().union(*map(tracked, PACKAGES))


def test_the_sdist_has_what_a_build_and_its_tests_need(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert [name for name in FOR_BUILDERS if name not in names] == []
    assert [name for name in names if name.startswith((".venv", ".cache", "dist/"))] == []


def test_a_node_of_the_wheel_and_the_locked_packages_serves(
    installation: Path, tmp_path: Path
) -> None:
    node = Installed(tmp_path, ["kafka"], env={"PYTHONPATH": ""})
    node.command = str(installation / "bin" / "headgate")
    with node:
        address = {"bootstrap.servers": f"127.0.0.1:{node.ports['kafka']}"}
        producer = Producer(address)
        producer.produce("greetings", b"hello")
        assert producer.flush(60) == 0
        assert first_value(address) == b"hello"
        status, page = node.http("/console/login")
        assert (status, "</html>" in page) == (200, True)
        assert any("greetings" in line for line in node.run_command("topics", "ls"))


def first_value(address: dict[str, str]) -> bytes | None:
    """Return the value of the first record of the topic ``greetings``."""
    consumer = Consumer({**address, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["greetings"])
    try:
        record = consumer.poll(60)
        assert record is not None
        assert record.error() is None
        return record.value()
    finally:
        consumer.close()


def test_the_command_says_the_version_of_the_wheel(installation: Path, tmp_path: Path) -> None:
    command = installation / "bin" / "headgate"
    done = subprocess.run(
        [command, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert PROJECT["version"] in done.stdout


def test_nothing_of_this_tree_is_imported(installation: Path, tmp_path: Path) -> None:
    asked = "import gateway.main, console, sys; print(*(p for p in sys.path), gateway.__file__)"
    done = subprocess.run(
        [installation / "bin" / "python", "-c", asked],
        cwd=tmp_path,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT) not in done.stdout
