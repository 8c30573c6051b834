"""Batches in objects of an S3 bucket, their index in SQL: a node without a disk of its own.

The way of an append: ``appender`` gathers it with others for ``flush_interval_ms``, ``objects``
makes one object of them, ``uploader`` puts it and ``committer`` turns its row ``live`` in one
transaction; then it is acknowledged. docs/adr/0010 says why, docs/formats.md section 11 how it lies
there.
"""
