"""The largest and most tedious requests of each protocol, as bytes."""
