"""Contribution of MQTT to the kernel."""

from typing import Final

from adapters.mqtt.rule_types import MQTT_TOPIC
from gateway.contributions import ConsolePage, Contribution

INBOUND_TOPIC: Final = "__mqtt_inbound"
RETAINED_TOPIC: Final = "__mqtt_retained"
SESSIONS_TOPIC: Final = "__mqtt_sessions"
SHARES_TOPIC: Final = "__mqtt_shares"

CONTRIBUTION: Final = Contribution(
    internal_topics=(INBOUND_TOPIC, RETAINED_TOPIC, SESSIONS_TOPIC, SHARES_TOPIC),
    resource_types=(MQTT_TOPIC,),
    console_pages=(ConsolePage("mqtt", "MQTT", "adapters.mqtt.console"),),
)
