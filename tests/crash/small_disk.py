"""How large the small disk of the tests is."""

DISK_BYTES = 40 << 20
BALLAST_BYTES = 16 << 20
