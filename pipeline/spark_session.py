"""Spark session with a suitable Java and Python, or a one-line error that names what is missing."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.errors import GatewayError
from gateway.installation import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN: Final = 17
SUBMITTED: Final = "submitted"  # as a master: use the one of spark-submit
DRIVER_MEMORY: Final = "2g"
LOG_VARIABLE: Final = "HEADGATE_SPARK_LOG"  # names the file of Spark's log; none unless set
_ONCE: Final = {"spark.stage.maxConsecutiveAttempts": "1", "spark.speculation": "false"}
_ROOT: Final = Path(__file__).resolve().parents[1]


_EXTRA: Final = "spark"
_PACKAGES: Final = ("numpy", "pyarrow")  # of all jobs, including those that plan without Spark


class SparkMissing(GatewayError):
    """Spark, or another requirement of a job, is missing."""


class JobFailed(GatewayError):
    """A task of Spark failed; the text is its error, in one line."""


def check_installed(*packages: str) -> None:
    """Raise ``SparkMissing`` unless the imports of jobs and ``packages`` are installed."""
    missing = [name for name in (*_PACKAGES, *packages) if not importlib.util.find_spec(name)]
    if missing:
        is_or_are = "is" if len(missing) == 1 else "are"
        raise SparkMissing(
            f"{', '.join(missing)} {is_or_are} not installed: {install_command(_EXTRA)}"
        )


def start_spark(name: str, *, master: str, once: bool = False) -> "SparkSession":
    """Return a session; ``master`` may be ``submitted``.

    ``once``: for a job whose tasks have side effects; no stage is repeated, and no task runs
    twice at a time. Errors: ``SparkMissing``, ``JobFailed``.
    """
    check_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissing(f"Spark is not installed: {install_command(_EXTRA)}") from None
    _name_python(master)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    )
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder if master == SUBMITTED else SparkSession.builder.master(master)
    )
    configured = (
        builder.appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", os.environ.get("SPARK_DRIVER_MEMORY", DRIVER_MEMORY))
    )
    for key, value in _ONCE.items() if once else ():
        configured = configured.config(key, value)
    with one_line(), _own_log():
        session = configured.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _name_python(master: str) -> None:
    """Make Spark run this Python, since the first ``python3`` of the PATH may lack Headgate.

    On a cluster, workers run the Python of their environment. The JVM of the driver
    looks for data sources by PYSPARK_DRIVER_PYTHON, which notebooks set to other programs.
    """
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


@contextmanager
def _own_log() -> Iterator[None]:
    """Redirect the log of the Java that starts meanwhile to ``HEADGATE_SPARK_LOG``.

    The job reports an error in one line; Java logs pages for a failed task.
    """
    terminal = os.dup(2)
    log = os.open(
        os.environ.get(LOG_VARIABLE, os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )
    sys.stderr.flush()
    os.dup2(log, 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(log)


def check_java() -> None:
    """Raise ``SparkMissing`` without a Java that Spark supports."""
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
    """Return the feature version that ``java -version`` prints, 0 without one.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else 0


@contextmanager
def one_line() -> Iterator[None]:
    """Convert Spark's long errors about tasks to ``JobFailed``."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise JobFailed(reason_of(str(error))) from error


def reason_of(said: str) -> str:
    r"""Return the last line of the Python traceback in a text of Spark, or else the first line.

    >>> reason_of("x\nTraceback (most recent call last):\n  File ...\na.b.Gone: no file\n\n\tat Y")
    'no file'
    >>> reason_of("An error occurred while calling o1.collect.\n: Boom: all is lost\n\tat X")
    'Boom: all is lost'
    """
    _, is_python, behind = said.partition("Traceback (most recent call last):")
    text = (behind if is_python else said).partition("\n\tat ")[0]
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(" ")]
    if not lines:
        return said.strip().splitlines()[0] if said.strip() else "Spark says no reason"
    if not is_python:
        return lines[1 if lines[0].startswith("An error occurred") and lines[1:] else 0].strip(
            ": "
        )
    name, _, reason = lines[-1].partition(": ")
    return reason if reason and name.replace(".", "").isidentifier() else lines[-1]
