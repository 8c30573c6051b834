"""The admin endpoint: health, metrics, and REST about all that a node holds."""
