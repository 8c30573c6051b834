"""Programs in other languages that the tests run: jars by Maven, a Go program, built once.

``python -m tests.support.toolchain`` builds all of them, so that no test has to.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = Path(os.environ.get("HEADGATE_TEST_CACHE", ROOT / ".cache"))
JAVA: Final = ROOT / "tests/interop/kafka/java"
JAVA_CLIENT_POM: Final = JAVA / "pom.xml"
CONNECT_POM: Final = ROOT / "tests/interop/kafka/connect/pom.xml"
SPARK_CONNECTOR_POM: Final = ROOT / "tests/pipeline/connector/pom.xml"
SPARK_CONNECTOR_JARS: Final = "jars-spark-connector"
KAFKA_SERVER_POM: Final = ROOT / "benchmarks/kafka/pom.xml"
FRANZ: Final = ROOT / "tests/interop/kafka/franz"

PACKAGES: Final = {
    "java": "default-jdk-headless",
    "mvn": "maven",
    "go": "Go 1.26 or newer from go.dev",
    "kcat": "kcat",
    "node": "nodejs (20 or newer)",
    "npm": "npm",
    "mosquitto": "mosquitto",
    "mosquitto_pub": "mosquitto-clients",
}
_NEEDED: Final = ("java", "mvn", "go", "kcat")
_BUILD_S_MAX: Final = 900


class ToolMissing(Exception):
    """A program is not on the PATH; the text says which package brings it."""


def need(*tools: str) -> None:
    """Raise ``ToolMissing`` unless every tool is on the PATH."""
    for tool in tools:
        if shutil.which(tool) is None:
            msg = f"{tool} is missing: install {PACKAGES.get(tool, tool)}"
            raise ToolMissing(msg)


def jars(pom: Path, *, name: str | None = None) -> Path:
    """Return a folder with the jars that a pom names; Maven copies them when needed."""
    return built(
        name or f"jars-{pom.parent.name}",
        [pom],
        lambda folder: [
            "mvn", "--batch-mode", "--quiet", "-f", str(pom),
            "dependency:copy-dependencies", f"-DoutputDirectory={folder}",
        ],
    )  # fmt: skip


def java_classpath() -> str:
    """Return the class path of Kafka's client and tools and of our program ``Interop``."""
    library = f"{jars(JAVA_CLIENT_POM)}/*"
    source = JAVA / "Interop.java"
    classes = built(
        "java-classes",
        [JAVA_CLIENT_POM, source],
        lambda folder: ["javac", "-cp", library, "-d", str(folder), str(source)],
    )
    return f"{library}:{classes}"


def franz_program() -> Path:
    """Return the Go program that speaks through franz-go."""
    sources = [FRANZ / "go.mod", FRANZ / "go.sum", *sorted(FRANZ.glob("*.go"))]
    folder = built(
        "franz",
        sources,
        lambda folder: ["go", "build", "-C", str(FRANZ), "-o", str(folder / "franz"), "."],
    )
    return folder / "franz"


def built(name: str, sources: Sequence[Path], command: Callable[[Path], Sequence[str]]) -> Path:
    """Return the folder that ``command`` fills, run once for each state of ``sources``."""
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    folder = CACHE / f"{name}-{digest[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:  # several test processes build at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            half_done = folder.with_suffix(".new")
            shutil.rmtree(half_done, ignore_errors=True)
            half_done.mkdir()
            subprocess.run(command(half_done), check=True, timeout=_BUILD_S_MAX)
            half_done.rename(folder)
    return folder


def main() -> None:
    """Build everything; exit status 1 names what is missing."""
    try:
        need(*_NEEDED)
    except ToolMissing as error:
        sys.exit(str(error))
    for made in (
        java_classpath(),
        jars(CONNECT_POM),
        jars(SPARK_CONNECTOR_POM, name=SPARK_CONNECTOR_JARS),
        franz_program(),
    ):
        sys.stdout.write(f"{made}\n")


if __name__ == "__main__":
    main()
