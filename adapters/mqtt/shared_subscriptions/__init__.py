"""Shared subscriptions: who is in a group, and who of it has which message."""
