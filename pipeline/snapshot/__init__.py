"""Job ``snapshot``: the latest value of each key."""
