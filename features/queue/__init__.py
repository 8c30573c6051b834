"""Competing consumers: delivery of a partition's messages with leases and attempts.

Callers use ``model`` (the types) and ``lane`` (the state of one partition and group) only. The
other modules, in reading order: ``states`` (states of a message), ``unread_ranges`` (messages
never handed out), ``open_messages`` (messages handed out and not settled), ``key_queues`` (order
of delivery), ``delivery``, ``acking``, ``requeueing`` and ``rejecting`` (one call each),
``browsing`` and ``timers``; ``journal`` has the entries that rebuild it all, and ``replay``
replays them.
"""
