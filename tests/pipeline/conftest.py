"""One Spark session for all tests here: starting one takes seconds."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from pipeline.resend import endpoint
from tests.pipeline.running import QUICK_JAVA, Jobs
from tests.support.s3_servers import REGION, S3Server, moto
from tests.support.toolchain import ROOT

# Workers of Spark have the environment in which it began; moto takes any credentials.
_AWS = {
    "AWS_ACCESS_KEY_ID": "test-access",
    "AWS_SECRET_ACCESS_KEY": "test-secret",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent/aws-config",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/aws-credentials",
}

if TYPE_CHECKING:  # the tests here are skipped where Java is missing, before Spark is imported
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Spark in this machine, with two workers of this very Python."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ.update(_AWS)
    configured = (
        SparkSession.builder.master("local[2]")
        .appName("headgate-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
    )
    with mock.patch.dict(os.environ, QUICK_JAVA):
        session = configured.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def jobs(spark: "SparkSession") -> Jobs:
    """Commands of ``headgate pipeline``, in that session."""
    return Jobs(spark)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up an endpoint where nobody listens soon."""
    monkeypatch.setattr(endpoint, "ANSWER_S_MAX", 2.0)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that all tests here share, each with buckets or prefixes of its own."""
    os.environ.update(_AWS)
    with moto(tmp_path_factory.mktemp("s3")) as server:
        yield server
