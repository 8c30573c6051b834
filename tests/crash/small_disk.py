"""Sizes of the tests' small disk."""

DISK_BYTES = 40 << 20
BALLAST_BYTES = 16 << 20
