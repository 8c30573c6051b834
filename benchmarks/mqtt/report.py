"""An outcome of the MQTT benchmarks: as any other, with the versions of what takes part."""

from dataclasses import dataclass
from importlib.metadata import version

from benchmarks.mqtt.mosquitto import mosquitto_version
from benchmarks.report import Report, interpreter


@dataclass(frozen=True)
class MqttReport(Report):
    """A benchmark's outcome."""

    def versions(self) -> dict[str, str]:
        """Return the versions of everything that takes part."""
        return {
            "headgate": version("headgate"),
            "python": interpreter(),
            "uvloop": version("uvloop"),
            "mosquitto": mosquitto_version(),
        }
