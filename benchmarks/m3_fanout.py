"""M3: QoS 0, 64 B, one publisher to ten subscribers: deliveries per second."""

from typing import Final

from benchmarks.mqtt.flow import flow_report
from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import GROUP, NEVER
from benchmarks.sides import Options

SUBSCRIBERS: Final = 10
AHEAD: Final = 10_000
BARS: Final = {GROUP: 5.0, NEVER: 5.0}


def run(options: Options) -> MqttReport:
    """Measure deliveries per second, of all subscribers together."""
    return flow_report(
        options,
        "m3",
        f"MQTT QoS 0 fan-out, 64 B, 1 publisher to {SUBSCRIBERS} subscribers, deliveries/s",
        case=f"1 to {SUBSCRIBERS}",
        place=("--subscribers", SUBSCRIBERS, "--ahead", AHEAD),
        bars=BARS,
        bound=f"at most {AHEAD:,} messages the slowest has not seen",
        unit="deliveries/s",
    )
