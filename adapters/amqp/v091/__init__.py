"""AMQP 0-9-1: frames, methods, channels."""
