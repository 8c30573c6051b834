"""SQS clients outside this environment: Amazon's SDKs and CLI, the peers; built once.

``python -m tests.support.sqs_toolchain`` builds all of it, so that no test has to.
"""

import sys
from pathlib import Path
from typing import Final

from tests.support import toolchain

_INTEROP: Final = toolchain.ROOT / "tests/interop/sqs"
_TOOLS: Final = _INTEROP / "tools"
_NEEDED: Final = ("java", "javac", "mvn", "node", "npm")


def java_classpath() -> str:
    """Return the class path of Amazon's libraries and of our ``SqsInterop`` and ``JmsInterop``."""
    return toolchain.java_program(
        _INTEROP / "java", jars_name="jars-sqs", classes_name="java-classes-sqs"
    )


def node_program() -> Path:
    """Return the program that speaks through @aws-sdk/client-sqs, its modules beside it."""
    return toolchain.node_program(_INTEROP / "node", name="node-sqs")


def elasticmq_jars() -> Path:
    """Return the folder with ElasticMQ's jars."""
    return toolchain.jars(_INTEROP / "elasticmq/pom.xml", name="jars-elasticmq")


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
    folder = toolchain.built(
        f"venv-{name}",
        [lock],
        lambda folder: ["sh", "-ec", script, sys.executable, str(folder), str(lock)],
    )
    return folder / "bin/python"


if __name__ == "__main__":
    toolchain.build(
        _NEEDED,
        java_classpath,
        node_program,
        elasticmq_jars,
        lambda: aws_cli()[0],
        lambda: moto_server()[0],
    )
