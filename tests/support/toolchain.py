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
STREAMS: Final = ROOT / "tests/interop/kafka/streams"
CONNECT_POM: Final = ROOT / "tests/interop/kafka/connect/pom.xml"
SPARK_CONNECTOR_POM: Final = ROOT / "tests/pipeline/connector/pom.xml"
SPARK_CONNECTOR_JARS: Final = "jars-spark-connector"
KAFKA_SERVER_POM: Final = ROOT / "benchmarks/kafka/pom.xml"
KAFKA_4_2_POM: Final = ROOT / "benchmarks/kafka_4_2/pom.xml"
FRANZ: Final = ROOT / "tests/interop/kafka/franz"
HELM_RENDERER: Final = ROOT / "tests/packaging/helm"

PACKAGES: Final = {
    "java": "default-jdk-headless",
    "mvn": "maven",
    "go": "Go 1.26 or newer from go.dev",
    "kcat": "kcat",
    "chromium": "chromium",
    "node": "nodejs (20 or newer)",
    "npm": "npm",
    "mosquitto": "mosquitto",
    "mosquitto_pub": "mosquitto-clients",
}
_NODE_FILES: Final = ("package.json", "package-lock.json", "interop.mjs")
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


def java_program(folder: Path, *, jars_name: str, classes_name: str) -> str:
    """Return the class path of what a folder's ``pom.xml`` names and of its ``*.java``."""
    pom, sources = folder / "pom.xml", sorted(folder.glob("*.java"))
    library = f"{jars(pom, name=jars_name)}/*"
    classes = built(
        classes_name,
        [pom, *sources],
        lambda made: ["javac", "-cp", library, "-d", str(made), *map(str, sources)],
    )
    return f"{library}:{classes}"


def node_program(folder: Path, *, name: str) -> Path:
    """Return a folder's ``interop.mjs``, copied, with the modules of its lock file beside it."""
    sources = [folder / file for file in _NODE_FILES]

    def command(made: Path) -> Sequence[str]:
        for source in sources:
            shutil.copy(source, made)
        prefix = str(made.resolve())  # npm takes what lies behind a link for another project
        return ["npm", "ci", "--prefix", prefix, "--no-audit", "--no-fund", "--silent"]

    return built(name, sources, command) / "interop.mjs"


def java_classpath() -> str:
    """Return the class path of Kafka's client and tools and of our program ``Interop``."""
    return java_program(JAVA, jars_name="jars-java", classes_name="java-classes")


def streams_classpath() -> str:
    """Return the class path of Kafka Streams and of our program ``Counts``."""
    return java_program(STREAMS, jars_name="jars-streams", classes_name="java-classes-streams")


def franz_program() -> Path:
    """Return the Go program that speaks through franz-go."""
    return go_program(FRANZ, name="franz")


def helm_renderer() -> Path:
    """Return the Go program that renders a Helm chart's templates; it needs no modules."""
    return go_program(HELM_RENDERER, name="helm")


def go_program(source: Path, *, name: str) -> Path:
    """Return the program of a folder with a Go module."""
    folder = built(
        name,
        [source / "go.mod", source / "go.sum", *sorted(source.glob("*.go"))],
        lambda folder: ["go", "build", "-C", str(source), "-o", str(folder / name), "."],
    )
    return folder / name


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


def build(needed: Sequence[str], *makers: Callable[[], object]) -> None:
    """Build and name each; exit status 1 names a tool that is missing."""
    try:
        need(*needed)
    except ToolMissing as error:
        sys.exit(str(error))
    for make in makers:
        sys.stdout.write(f"{make()}\n")


if __name__ == "__main__":
    build(
        ("java", "mvn", "go", "kcat"),
        java_classpath,
        lambda: jars(CONNECT_POM),
        streams_classpath,
        lambda: jars(SPARK_CONNECTOR_POM, name=SPARK_CONNECTOR_JARS),
        franz_program,
        helm_renderer,
    )
