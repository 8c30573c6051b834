"""Stock MQTT clients in other languages: mqtt.js by npm, HiveMQ's by Maven, built once.

``python -m tests.support.mqtt_toolchain`` builds them, so that no test has to.
"""

import shutil
import sys
from pathlib import Path
from typing import Final

from tests.support.toolchain import ROOT, ToolMissing, built, jars, need

_INTEROP: Final = ROOT / "tests/interop/mqtt"
_JAVA: Final = _INTEROP / "java"
_NODE: Final = _INTEROP / "node"
_NODE_FILES: Final = ("package.json", "package-lock.json", "interop.mjs")
TOOLS: Final = ("java", "javac", "mvn", "node", "npm", "mosquitto", "mosquitto_pub")


def java_classpath() -> str:
    """Return the class path of HiveMQ's client and of our program ``MqttInterop``."""
    library = f"{jars(_JAVA / 'pom.xml', name='jars-mqtt')}/*"
    source = _JAVA / "MqttInterop.java"
    classes = built(
        "java-classes-mqtt",
        [_JAVA / "pom.xml", source],
        lambda folder: ["javac", "-cp", library, "-d", str(folder), str(source)],
    )
    return f"{library}:{classes}"


def node_program() -> Path:
    """Return the program that speaks through mqtt.js, its modules beside it."""
    sources = [_NODE / name for name in _NODE_FILES]

    def command(folder: Path) -> list[str]:
        for source in sources:
            shutil.copy(source, folder)
        return ["npm", "ci", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent"]

    return built("node-mqtt", sources, command) / "interop.mjs"


def main() -> None:
    """Build everything; exit status 1 names what is missing."""
    try:
        need(*TOOLS)
    except ToolMissing as error:
        sys.exit(str(error))
    for path in (java_classpath(), node_program()):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
