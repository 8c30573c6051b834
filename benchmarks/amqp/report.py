"""An outcome of the AMQP benchmarks: as any other, with the versions of what takes part."""

from dataclasses import dataclass
from importlib.metadata import version

from benchmarks.amqp.rabbitmq import rabbitmq_version
from benchmarks.report import Report, interpreter


@dataclass(frozen=True)
class AmqpReport(Report):
    """A benchmark's outcome."""

    def versions(self) -> dict[str, str]:
        """Return the versions of everything that takes part."""
        return {
            "headgate": version("headgate"),
            "python": interpreter(),
            "uvloop": version("uvloop"),
            "rabbitmq": rabbitmq_version(),
        }
