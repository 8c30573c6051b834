"""Formats on disk and in objects: segment header, entries, footer (docs/formats.md).

Pure functions over bytes, shared by the broker, ``headgate log dump`` and the data pipeline.
Integers are little-endian; the record batches inside are Kafka's and stay big-endian.
"""
