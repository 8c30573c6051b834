"""Slow facts: topics, queues, users and rules, in SQL."""
