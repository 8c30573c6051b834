"""Pulls that wait for messages, and the offsets that groups commit."""
