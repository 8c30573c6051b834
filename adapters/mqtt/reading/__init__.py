"""The log read for subscribers: live feeds, catching up, slow QoS 0 receivers."""
