"""What is wrong with stored bytes."""


class Damaged(Exception):
    """Bytes that are not what the format says; the text says what is wrong with them."""


class TooNew(Exception):
    """Written by a later version of the format; this version must leave it alone."""
