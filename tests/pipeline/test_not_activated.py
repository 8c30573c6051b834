"""Spark's workers run the Python of Headgate, also where its environment is not activated."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.pipeline.running import QUICK_JAVA, RUN_S_MAX
from tests.support.gateway import Gateway
from tests.support.toolchain import ROOT

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark")]

PROGRAM = Path(sys.executable).with_name("headgate")
SCRIPT = """
import sys
import pyspark_headgate
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
frame = spark.read.format("headgate").option("topics", "letters").load(sys.argv[1])
print("rows", frame.count())
"""
# As a machine has it on which another Spark is set up.
OTHERS = {"PYSPARK_PYTHON": "python3", "PYSPARK_DRIVER_PYTHON": "python3"}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with Gateway(tmp_path_factory.mktemp("node") / "data") as gateway:
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "log_level": 0})
        for _ in range(3):
            producer.produce("letters", b"x", headers=[("dlq.reason", b"attempts")])
        assert producer.flush(60) == 0
    return gateway.data_dir


@pytest.fixture
def env(tmp_path: Path) -> Mapping[str, str]:
    """Return an environment in which ``python3`` is a Python that has nothing installed."""
    java = shutil.which("java")
    assert java is not None
    folder = tmp_path / "bin"
    folder.mkdir()
    python = folder / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    path = os.pathsep.join([str(folder), str(Path(java).parent), "/usr/bin", "/bin"])
    return {**kept, **QUICK_JAVA, "PATH": path, "PYTHONPATH": str(ROOT)}


def run(command: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )


@pytest.mark.parametrize("others", [{}, OTHERS])
def test_a_job_by_the_absolute_path_of_the_program(
    data_dir: Path, env: Mapping[str, str], others: Mapping[str, str]
) -> None:
    job = [str(PROGRAM), "pipeline", "dlq", "reasons", "--topic", "letters"]

    done = run(
        [*job, f"--set=node.data_dir={data_dir}", "--master", "local[1]"], {**env, **others}
    )

    assert done.returncode == 0, done.stderr
    assert "3 dead letter(s) in 1 group(s)" in done.stdout


def test_a_script_by_the_absolute_path_of_its_python(
    data_dir: Path, env: Mapping[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)

    done = run(
        [sys.executable, str(script), str(data_dir)], {**env, "SPARK_LOCAL_IP": "127.0.0.1"}
    )

    assert "rows 3" in done.stdout, done.stderr[-2_000:]
