"""Produce requests: appends of their batches, and results."""
