"""Headgate's kernel: the model, the broker, the managers and the ports. No protocol, no storage."""
