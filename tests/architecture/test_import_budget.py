"""Modules that an idle server with the default settings has loaded: no more than it needs."""

import subprocess
import sys

from tests.support.toolchain import ROOT

# (rich is there all the same: structlog's development module imports it whenever it can.)
# Loaded by commands, by the first cold request, by an old schema, or by tests only.
LATE = {
    "aiokafka", "alembic", "boto3", "botocore", "confluent_kafka", "console", "cramjam", "jinja2",
    "kafka", "kio", "lz4", "gateway.admin.rest", "gateway.testing",
    "hypothesis", "numpy", "pytest", "sqlalchemy.orm", "typer", "zstandard",
}  # fmt: skip
OTHERS = {"adapters.mqtt", "adapters.sqs"}  # adapters that this config does not name

LIST_MODULES = """
import sys
import gateway.cli.serve, gateway.config.loader, gateway.main
from gateway.registry import adapter_class, storage_class
adapter_class("kafka"), storage_class("segment_log")
print("\\n".join(sys.modules))
"""


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
