"""Admin endpoint: health, metrics and the REST API of a node."""
