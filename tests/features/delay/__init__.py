"""The pure part of the delay block."""
