"""Upkeep of the log: retention, compaction, key indexes."""
