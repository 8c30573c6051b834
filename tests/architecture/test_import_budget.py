"""Modules that are loaded: by an idle server with the default settings, and by a command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.toolchain import ROOT

# (rich is there all the same: structlog's development module imports it whenever it can.)
# Loaded by commands, by the first cold request, by an old schema, or by tests only.
LATE = {
    "aiokafka", "alembic", "boto3", "botocore", "confluent_kafka", "console", "cramjam", "jinja2",
    "kafka", "kio", "lz4", "gateway.admin.rest", "gateway.testing",
    "hypothesis", "numpy", "pytest", "sqlalchemy.orm", "typer", "zstandard",
}  # fmt: skip
OTHERS = {
    "adapters.mqtt",
    "adapters.rocketmq",
    "adapters.sqs",
}  # adapters that this config does not name

LIST_MODULES = """
import sys
import gateway.cli.serve, gateway.config.loader, gateway.main
from gateway.registry import adapter_class, storage_class
adapter_class("kafka"), storage_class("segment_log")
print("\\n".join(sys.modules))
"""

# What a command about a running node does without: each is a tenth of a second or more.
NOT_FOR_COMMANDS = {
    "adapters", "asyncio", "features", "pydantic", "rich", "sqlalchemy", "storage_adapters",
    "structlog", "uvloop", "gateway.config.settings",
}  # fmt: skip
REMOTE_COMMANDS = [
    ("topics", "ls"),
    ("topics", "create", "t", "-p", "3", "-c", "retention.ms=1"),
    ("topics", "find", "t", "--key", "k", "--limit", "3"),
    ("groups", "ls"),
    ("queues", "create", "q", "lease_ms=1"),
    ("dlq", "show", "q"),
    ("clients", "ls"),
    ("users", "ls"),
    ("exchanges", "ls"),
    ("status",),
    ("send", "t", "hello"),
    ("tail", "t"),
    ("mqtt", "sessions"),
]
RUN_COMMAND = """
import sys
from gateway.cli.app import main
print(main(sys.argv[1:]), *sys.modules, sep="\\n")
"""


@pytest.mark.parametrize("arguments", REMOTE_COMMANDS, ids=" ".join)
def test_a_command_about_a_running_node_loads_little(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """Nothing listens at the port: the command has loaded all that it needs by then."""
    token = tmp_path / "token"
    token.write_text("secret")
    done = subprocess.run(
        [sys.executable, "-c", RUN_COMMAND, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={
            **os.environ,
            "HEADGATE_URL": "http://127.0.0.1:1",
            "HEADGATE_TOKEN_FILE": str(token),
        },
    )

    status, *modules = done.stdout.split()
    assert (status, NOT_FOR_COMMANDS & set(modules)) == ("1", set())
    assert "no node answers" in done.stderr


def test_the_server_loads_only_what_its_config_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIST_MODULES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert (LATE | OTHERS) & set(done.stdout.split()) == set()
