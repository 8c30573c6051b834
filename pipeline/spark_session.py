"""A Spark session of the right Java and the right Python, or one line that says what is missing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.errors import GatewayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN: Final = 17
SUBMITTED: Final = "submitted"  # as a master: what spark-submit says counts
DRIVER_MEMORY: Final = "2g"
_ROOT: Final = Path(__file__).resolve().parents[1]


class SparkMissing(GatewayError):
    """Spark, or the Java that it needs, is not there."""


def start_spark(name: str, *, master: str) -> "SparkSession":
    """Return a session; ``master`` may be ``submitted``. Error: ``SparkMissing``."""
    check_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissing("Spark is not installed: pip install 'headgate[spark]'") from None
    # Workers take the first python3 of the PATH unless they are told.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    )
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder if master == SUBMITTED else SparkSession.builder.master(master)
    )
    session = (
        builder.appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", os.environ.get("SPARK_DRIVER_MEMORY", DRIVER_MEMORY))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def check_java() -> None:
    """Raise ``SparkMissing`` unless there is a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin/java") if home else shutil.which("java")
    install = f"install a JDK, {JAVA_VERSION_MIN} or newer (Debian: default-jdk-headless)"
    if program is None:
        raise SparkMissing(f"Spark needs Java, and there is no `java`: {install}")
    try:
        said = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-version"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise SparkMissing(f"{program}: {error.strerror}: {install}") from error
    version = java_version(said.stderr)
    if version < JAVA_VERSION_MIN:
        raise SparkMissing(
            f"Spark needs Java {JAVA_VERSION_MIN}, and {program} is {version or 'unknown'}: "
            f"{install}, and let JAVA_HOME name it"
        )


def java_version(said: str) -> int:
    """Return the feature version that ``java -version`` prints, 0 when it says none.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else 0
