"""Backups of a running node, and the way back."""
