"""Hostile clients before and after a login, over real sockets."""
