"""Data pipeline: a PySpark data source that reads the log in place, and the jobs on top of it."""
