"""Queues at work: lanes of the queue block, with their journal, bodies and receivers."""
