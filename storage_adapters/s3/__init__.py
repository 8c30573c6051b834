"""Batches in objects of an S3 bucket, their index in SQL: a node without a disk of its own.

An append passes four modules: ``appender`` gathers it with others for ``flush_interval_ms``,
``objects`` makes one object of them, ``uploader`` puts it, and ``committer`` turns its row ``live``
in one transaction; then it is acknowledged. See docs/adr/0010 for the reasons and docs/formats.md,
section 11, for the format.
"""
