"""Metadata: topics, queues, users and rules, in SQL."""
