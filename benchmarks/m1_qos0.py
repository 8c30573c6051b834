"""M1: QoS 0, 64 B, one publisher to one subscriber."""

from typing import Final

from benchmarks.mqtt.flow import flow_report
from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import GROUP, NEVER
from benchmarks.sides import Options

AHEAD: Final = 10_000
BARS: Final = {GROUP: 3.0, NEVER: 3.0}


def run(options: Options) -> MqttReport:
    """Measure messages per second."""
    return flow_report(
        options,
        "m1",
        "MQTT QoS 0, 64 B, 1 publisher to 1 subscriber",
        case="1 to 1",
        place=("--ahead", AHEAD),
        bars=BARS,
        bound=f"at most {AHEAD:,} messages not seen yet",
    )
