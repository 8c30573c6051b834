"""Shared parts of the consumer group APIs."""
