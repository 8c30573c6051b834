"""``headgate serve`` as a process: exit status, what it says, what it imports."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.certificates import make_certificate
from tests.support.gateway import ROOT, Gateway


def serve(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", "serve", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("assignment", "line"),
    [
        ("node.data_dri=x", "node.data_dri: unknown key; did you mean node.data_dir?"),
        ("admin.bind=nowhere", "admin.bind: not host:port"),
        ("adapters.kafka.bind=0.0.0.0:0", "adapters.kafka.bind: 0.0.0.0:0 is open to others"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_status_2(
    tmp_path: Path, assignment: str, line: str
) -> None:
    done = serve(tmp_path, "--set", "admin.bind=127.0.0.1:0", "--set", assignment)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_typing_error_leaves_nothing_behind(tmp_path: Path) -> None:
    serve(tmp_path, "--set", "node.data_dri=x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["adapters.kafka.bind", "admin.bind"])
def test_a_taken_port_is_one_line_with_the_key(tmp_path: Path, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        others = {"adapters.kafka.bind": "127.0.0.1:0", "admin.bind": "127.0.0.1:0", key: bind}
        done = serve(tmp_path, *(f"--set={name}={value}" for name, value in others.items()))
    assert done.returncode == 2
    assert f"{key}: {bind}" in done.stderr
    assert f"ddress already in use; set {key} to another address" in done.stderr
    lines = done.stderr.splitlines()
    assert len([line for line in lines if "starting" not in line]) == 1


def test_a_data_directory_in_use_is_named_before_any_port(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data") as gateway:
        done = serve(tmp_path, *(f"--set={key}={at}" for key, at in gateway.settings.items()))
        assert done.returncode == 1
        assert f"{tmp_path}/data is in use by process {gateway.pid}" in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["tls_cert", "tls_key"])
def test_a_file_of_tls_that_is_not_there_is_one_line_with_the_key(
    tmp_path: Path, name: str
) -> None:
    settings = dict(zip(("tls_cert", "tls_key"), make_certificate(tmp_path), strict=True))
    settings[name] = tmp_path / "nowhere.pem"
    binds = [f"--set={key}=127.0.0.1:0" for key in ("admin.bind", "adapters.kafka.bind")]
    done = serve(
        tmp_path, *binds, *(f"--set=adapters.kafka.{key}={at}" for key, at in settings.items())
    )
    assert done.returncode == 2
    assert f"adapters.kafka.{name}: {tmp_path}/nowhere.pem: No such file" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_help_names_the_options(tmp_path: Path) -> None:
    done = serve(tmp_path, "--help")
    assert done.returncode == 0
    assert "--config" in done.stdout
    assert "--set" in done.stdout


def test_it_says_where_it_listens_and_stops_with_status_0(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data") as gateway:
        assert gateway.program is not None
        line = gateway.program.wait_for_line("headgate ready", within_s=10)
        assert f"127.0.0.1:{gateway.kafka_port}" in line
        assert f"127.0.0.1:{gateway.admin_port}" in line
        gateway.stop()


HEAVY = {
    "alembic", "boto3", "cramjam", "google", "grpc", "jinja2", "kafka", "lz4", "mako", "numpy",
    "prometheus_client", "pyarrow", "pyspark", "rich", "sqlalchemy.orm", "typer", "yaml",
    "zstandard",
}  # fmt: skip


def test_an_idle_server_has_imported_nothing_heavy(tmp_path: Path) -> None:
    """The import budget: what an idle node has not needed yet is not in its memory."""
    code = (
        "import sys\n"
        "from gateway.cli.serve import _import_structlog_alone, main\n"
        "_import_structlog_alone()\n"
        "import gateway.main\n"
        "async def started(self, stack, start=gateway.main._Node._start):\n"
        "    await start(self, stack)\n"
        "    self._stop.set()\n"
        "gateway.main._Node._start = started\n"
        "status = main(sys.argv[1:])\n"
        "print('modules', *sys.modules)\n"
        "sys.exit(status)\n"
    )
    keys = (
        "admin",
        "adapters.kafka",
        "adapters.mqtt",
        "adapters.mqtt.websocket",
        "adapters.amqp.management",
        "adapters.sqs",
        "adapters.amqp",
    )
    arguments = [f"--set={key}.bind=127.0.0.1:0" for key in keys]
    for _ in range(2):  # The first start makes the schema, for which alembic may be needed.
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
    modules = set(done.stdout.partition("modules ")[2].split())
    assert "gateway.kernel" in modules
    assert modules & HEAVY == set()


def test_a_node_looks_for_garbage_but_not_in_what_it_has_imported(tmp_path: Path) -> None:
    code = (
        "import gc, sys\n"
        "import gateway.main\n"
        "from gateway.__main__ import main\n"
        "async def started(self, stack):\n"
        "    print(gc.isenabled(), gc.get_freeze_count() > 10_000)\n"
        "    self._stop.set()\n"
        "gateway.main._Node._start = started\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "--set=admin.bind=127.0.0.1:0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True"]
