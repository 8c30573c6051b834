"""Transfers between logs: what an operation does in the shards of other nodes, each effect once."""
