"""Errors of stored bytes: damage, and formats that are too new."""


class Damaged(Exception):
    """Stored bytes that violate the format; the text names the fault."""


class TooNew(Exception):
    """Written by a later version of the format; this version must leave it alone."""
