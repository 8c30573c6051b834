"""Sending, receiving and settling messages."""
