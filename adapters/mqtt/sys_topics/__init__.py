"""The ``$SYS`` topics: counters and totals of the node."""
