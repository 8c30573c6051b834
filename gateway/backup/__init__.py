"""Backups of a running node, and their restore."""
