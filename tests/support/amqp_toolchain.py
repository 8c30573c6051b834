"""Stock AMQP clients in other languages: RabbitMQ's, Spring AMQP and PerfTest by Maven, others.

The others are amqplib by npm and amqp091-go.

Tools of RabbitMQ's HTTP API: rabbit-hole in Go, rabbitmqadmin of Debian's package.

``python -m tests.support.amqp_toolchain`` builds them, so that no test has to.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support import toolchain

_INTEROP: Final = toolchain.ROOT / "tests/interop/amqp"
_NEEDED: Final = ("java", "javac", "mvn", "node", "npm", "go", "dpkg")
_PACKAGE: Final = "rabbitmq-server"
_INSTALLED: Final = Path("/usr/lib/rabbitmq/lib")
_ADMIN: Final = "**/priv/www/cli/rabbitmqadmin"


def java_classpath() -> str:
    """Return the class path of the jars and of our programs, ``AmqpInterop`` and others."""
    return toolchain.java_program(
        _INTEROP / "java", jars_name="jars-amqp", classes_name="java-classes-amqp"
    )


def node_program() -> Path:
    """Return the program that speaks through amqplib, its modules beside it."""
    return toolchain.node_program(_INTEROP / "node", name="node-amqp")


def go_program() -> Path:
    """Return the program that speaks through amqp091-go."""
    return toolchain.go_program(_INTEROP / "go", name="go-amqp")


def rabbithole_program() -> Path:
    """Return the program that speaks through rabbit-hole."""
    return toolchain.go_program(_INTEROP / "rabbithole", name="rabbithole")


def rabbitmqadmin_program() -> Path:
    """Return the script of the installed package; without one, the package is unpacked."""
    installed = sorted(_INSTALLED.glob(_ADMIN))
    if installed:
        return installed[0]
    folder = toolchain.built("rabbitmqadmin", [Path(__file__)], _unpack)
    return next(folder.glob(_ADMIN))


def _unpack(made: Path) -> Sequence[str]:
    into = str(made.resolve())
    command = (
        f"cd {into} && apt-get download {_PACKAGE} && dpkg -x {_PACKAGE}_*.deb . && rm *.deb"
    )
    return ["bash", "-c", command]


if __name__ == "__main__":
    toolchain.build(
        _NEEDED,
        java_classpath,
        node_program,
        go_program,
        rabbithole_program,
        rabbitmqadmin_program,
    )
