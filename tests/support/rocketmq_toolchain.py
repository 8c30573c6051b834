"""RocketMQ's Java clients of two versions, by Maven, and the program that uses either.

``python -m tests.support.rocketmq_toolchain`` builds them, so that no test has to.
"""

from pathlib import Path
from typing import Final

from tests.support import toolchain

_INTEROP: Final = toolchain.ROOT / "tests/interop/rocketmq"
_POMS: Final = {"5.5": _INTEROP / "java", "4.9": _INTEROP / "java_4_9"}
_PROGRAM: Final = _INTEROP / "java" / "RocketMqInterop.java"


def java_classpath(version: str) -> str:
    """Return the class path of a client's version and of our program ``RocketMqInterop``."""
    pom: Path = _POMS[version] / "pom.xml"
    name = f"rocketmq-{version}"
    library = f"{toolchain.jars(pom, name=f'jars-{name}')}/*"
    classes = toolchain.built(
        f"java-classes-{name}",
        [pom, _PROGRAM],
        lambda made: ["javac", "-cp", library, "-d", str(made), str(_PROGRAM)],
    )
    return f"{library}:{classes}"


if __name__ == "__main__":
    toolchain.build(
        ("java", "javac", "mvn"), lambda: java_classpath("5.5"), lambda: java_classpath("4.9")
    )
