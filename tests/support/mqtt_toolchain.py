"""Stock MQTT clients in other languages: mqtt.js by npm, HiveMQ's by Maven, built once.

``python -m tests.support.mqtt_toolchain`` builds them, so that no test has to.
"""

from pathlib import Path
from typing import Final

from tests.support import toolchain

_INTEROP: Final = toolchain.ROOT / "tests/interop/mqtt"
_NEEDED: Final = ("java", "javac", "mvn", "node", "npm", "mosquitto", "mosquitto_pub")


def java_classpath() -> str:
    """Return the class path of HiveMQ's client and of our program ``MqttInterop``."""
    return toolchain.java_program(
        _INTEROP / "java", jars_name="jars-mqtt", classes_name="java-classes-mqtt"
    )


def node_program() -> Path:
    """Return the program that speaks through mqtt.js, its modules beside it."""
    return toolchain.node_program(_INTEROP / "node", name="node-mqtt")


if __name__ == "__main__":
    toolchain.build(_NEEDED, java_classpath, node_program)
