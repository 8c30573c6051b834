"""Topics: their names, configs and addresses."""
