"""Policies: settings for all queues or exchanges whose names match a pattern."""
