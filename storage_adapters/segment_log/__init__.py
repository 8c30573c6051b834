"""A write-ahead log shared by all topics, in segments of a fixed size (docs/formats.md).

Read ``adapter`` first (what the broker calls), then ``appender`` and ``writer`` (the way in),
``catalog`` and ``reading`` (the way out), ``recovery`` (a start), ``sweeper`` (the end of
data).
"""
