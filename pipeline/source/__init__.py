"""Data source and sink of Spark, ``format("headgate")``."""
