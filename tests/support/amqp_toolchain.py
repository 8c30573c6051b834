"""Stock AMQP clients in other languages: RabbitMQ's by Maven, amqplib by npm, amqp091-go.

``python -m tests.support.amqp_toolchain`` builds them, so that no test has to.
"""

from pathlib import Path
from typing import Final

from tests.support import toolchain

_INTEROP: Final = toolchain.ROOT / "tests/interop/amqp"
_NEEDED: Final = ("java", "javac", "mvn", "node", "npm", "go")


def java_classpath() -> str:
    """Return the class path of RabbitMQ's client and of our program ``AmqpInterop``."""
    return toolchain.java_program(
        _INTEROP / "java", jars_name="jars-amqp", classes_name="java-classes-amqp"
    )


def node_program() -> Path:
    """Return the program that speaks through amqplib, its modules beside it."""
    return toolchain.node_program(_INTEROP / "node", name="node-amqp")


def go_program() -> Path:
    """Return the program that speaks through amqp091-go."""
    return toolchain.go_program(_INTEROP / "go", name="go-amqp")


if __name__ == "__main__":
    toolchain.build(_NEEDED, java_classpath, node_program, go_program)
