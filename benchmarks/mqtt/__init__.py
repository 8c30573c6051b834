"""The two brokers of the MQTT benchmarks and what is measured of them."""
