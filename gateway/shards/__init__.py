"""Calls to shards: the rooms of this node's shards, and the way to those of other nodes."""
