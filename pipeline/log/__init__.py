"""Reading of the log in a data directory or a bucket, as Arrow columns."""
