"""Retained messages: stored, and sent to new subscriptions."""
