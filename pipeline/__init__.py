"""The data pipeline: a PySpark data source over the log where it lies, and the jobs on top."""
