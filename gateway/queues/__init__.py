"""Queues: lanes of the queue block, with their journal, message cache and receivers."""
