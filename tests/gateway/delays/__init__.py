"""The delay block of the node."""
