"""MQTT 3.1, 3.1.1 and 5.0 (docs.oasis-open.org/mqtt/mqtt/v5.0/mqtt-v5.0.html)."""
