"""An outcome of the MQTT benchmarks: as any other, with the versions of what takes part."""

import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from benchmarks.mqtt.mosquitto import mosquitto_version
from benchmarks.report import Report


@dataclass(frozen=True)
class MqttReport(Report):
    """A benchmark's outcome."""

    def _lines(self) -> list[str]:
        said = ", ".join(f"{name} {what}" for name, what in _versions().items())
        return [*super()._lines(), f"  {said}"]

    def _json(self) -> dict[str, Any]:
        return {**super()._json(), "versions": _versions()}


def _versions() -> dict[str, str]:
    return {
        "headgate": version("headgate"),
        "python": platform.python_version(),
        "uvloop": version("uvloop"),
        "mosquitto": mosquitto_version(),
    }
