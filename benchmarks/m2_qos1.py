"""M2: QoS 1, 64 B, 100 unacknowledged at most, one publisher to one subscriber."""

from typing import Final

from benchmarks.mqtt.flow import flow_report
from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import GROUP, NEVER
from benchmarks.sides import Options

WINDOW: Final = 100
AHEAD: Final = 1_000
BARS: Final = {GROUP: 1.5, NEVER: 3.0}


def run(options: Options) -> MqttReport:
    """Measure messages per second, each acknowledged on both ways."""
    return flow_report(
        options,
        "m2",
        f"MQTT QoS 1, 64 B, window {WINDOW}, 1 publisher to 1 subscriber",
        case=f"1 to 1, window {WINDOW}",
        place=("--qos", 1, "--window", WINDOW, "--ahead", AHEAD),
        bars=BARS,
        bound=f"at most {AHEAD:,} messages not seen yet",
    )
