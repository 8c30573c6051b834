"""What speaks SQS and is not of this environment: Amazon's SDKs and CLI, the peers; built once.

``python -m tests.support.sqs_toolchain`` builds all of it, so that no test has to.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.toolchain import ROOT, ToolMissing, built, jars, need

_INTEROP: Final = ROOT / "tests/interop/sqs"
_TOOLS: Final = _INTEROP / "tools"
_JAVA: Final = _INTEROP / "java"
_NODE: Final = _INTEROP / "node"
_NODE_FILES: Final = ("package.json", "package-lock.json", "interop.mjs")
_NEEDED: Final = ("java", "javac", "mvn", "node", "npm")


def java_classpath() -> str:
    """Return the class path of Amazon's libraries and of our ``SqsInterop`` and ``JmsInterop``."""
    library = f"{jars(_JAVA / 'pom.xml', name='jars-sqs')}/*"
    sources = sorted(_JAVA.glob("*.java"))
    classes = built(
        "java-classes-sqs",
        [_JAVA / "pom.xml", *sources],
        lambda folder: ["javac", "-cp", library, "-d", str(folder), *map(str, sources)],
    )
    return f"{library}:{classes}"


def node_program() -> Path:
    """Return the program that speaks through @aws-sdk/client-sqs, its modules beside it."""
    sources = [_NODE / name for name in _NODE_FILES]

    def command(folder: Path) -> Sequence[str]:
        for source in sources:
            shutil.copy(source, folder)
        return ["npm", "ci", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent"]

    return built("node-sqs", sources, command) / "interop.mjs"


def elasticmq_jars() -> Path:
    """Return the folder with ElasticMQ's jars."""
    return jars(_INTEROP / "elasticmq/pom.xml", name="jars-elasticmq")


def aws_cli() -> list[str]:
    """Return the command that is the AWS CLI: it wants versions of its own, so a home as well."""
    return [str(_environment("awscli")), "-m", "awscli"]


def moto_server() -> list[str]:
    """Return the command that is moto's server, in an environment of its own."""
    return [str(_environment("moto")), "-m", "moto.server"]


def _environment(name: str) -> Path:
    """Return the Python of an environment that has what ``tools/<name>.lock`` says."""
    lock = _TOOLS / f"{name}.lock"
    script = '"$0" -m venv "$1" && "$1/bin/python" -m pip install -q --require-hashes -r "$2"'
    folder = built(
        f"venv-{name}",
        [lock],
        lambda folder: ["sh", "-ec", script, sys.executable, str(folder), str(lock)],
    )
    return folder / "bin/python"


def main() -> None:
    """Build everything; exit status 1 names what is missing."""
    try:
        need(*_NEEDED)
    except ToolMissing as error:
        sys.exit(str(error))
    found = (java_classpath(), node_program(), elasticmq_jars(), aws_cli()[0], moto_server()[0])
    for path in found:
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
