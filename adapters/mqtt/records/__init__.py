"""Records of the log to MQTT messages and back."""
