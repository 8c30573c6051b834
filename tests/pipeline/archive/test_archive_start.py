"""Messages of a job when Spark, Java or a package is missing, and the cost of ``--help``."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_group

from gateway.cli.app import main
from gateway.cli.pipeline import pipeline_app
from gateway.cli.pipeline_options import submit_line
from gateway.installation import install_command
from pipeline.spark_session import SparkMissing, check_installed, check_java
from tests.support.toolchain import ROOT


def _java(folder: Path, version: str) -> None:
    program = folder / "bin/java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "said"),
    [("11.0.2", "Spark needs Java 17, and .* is 11: install a JDK"), ("?", "is unknown")],
)
def test_an_old_java_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, said: str
) -> None:
    _java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SparkMissing, match=said) as raised:
        check_java()

    assert "\n" not in str(raised.value)


def test_a_java_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    check_java()


def test_no_java_at_all_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SparkMissing, match="there is no `java`: install a JDK, 17 or newer"):
        check_java()


def test_a_missing_package_is_named_with_what_to_install() -> None:
    expected = re.escape(f"no_such_package is not installed: {install_command('spark')}")
    with pytest.raises(SparkMissing, match=expected):
        check_installed("no_such_package")


def test_a_missing_spark_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError\n")
    _java(tmp_path, "17.0.1")
    code = (
        "from pipeline.spark_session import SparkMissing, start_spark\n"
        "try:\n    start_spark('x', master='local')\n"
        "except SparkMissing as error:\n    print(error)"
    )
    env = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "JAVA_HOME": str(tmp_path),
    }

    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )

    assert done.stdout == f"Spark is not installed: {install_command('spark')}\n"


def test_help_imports_nothing_of_spark() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gateway", "pipeline", "archive", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "--to" in done.stdout
    assert not loaded & {"pyspark", "pyarrow", "numpy", "deltalake", "pyiceberg", "boto3"}


def test_the_line_for_spark_submit_keeps_the_cluster_that_was_named() -> None:
    line = submit_line(
        ["pipeline", "archive", "--topic", "a b", "--master=spark://h:1", "--print-submit"]
    )

    assert line.startswith("spark-submit --master spark://h:1 ")
    assert line.endswith("submit.py archive --topic 'a b' --master=submitted")


def test_the_line_for_spark_submit_has_no_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "pipeline", "archive", "--topic", "a", "--to=s3://lake/a", "--print-submit",
        "--catalog", "postgresql+psycopg://lake:s3cret/1@db:5432/lake",
        "--set=metadata.url=postgresql://db/headgate?user=me&password=s3cret&sslmode=require",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["headgate", *given])

    status = main(given)

    said = capsys.readouterr()
    assert status == 0
    assert "postgresql+psycopg://lake:***@db:5432/lake" in said.out
    assert "user=me&password=***&sslmode=require" in said.out
    assert "s3cret" not in said.out + said.err
    assert said.err.startswith("headgate: *** stands for a password")


def test_no_word_of_a_help_is_taken_for_markup() -> None:
    jobs = get_group(pipeline_app).commands
    assert "compact" in jobs
    for name, job in jobs.items():
        for option in job.params:
            said = getattr(option, "help", None) or ""
            assert not re.search(r"(?<!\\)\[[a-z]", said), f"{name} {option.name}: {said}"
