"""Logs of a bucket: each writer has a log, and each log a range of sequences (ADR 0028).

Log ``n`` has the sequences from ``n * 2^48 + 1`` on. A range that begins where another ends is of
the same log, and ranges of different logs never overlap. A bucket with one writer has log 0.
"""

from typing import Final

LOG_SHIFT: Final = 48  # 2^48 appends: at 100,000 a second 89 years
LOGS_MAX: Final = 1 << 15  # sequences are signed 64-bit integers in SQL


def log_of(next_sequence: int) -> int:
    """Return the log of an object by one past its last sequence, or of any sequence.

    >>> log_of(7), log_of((3 << 48) + 1)
    (0, 3)
    """
    return next_sequence >> LOG_SHIFT


def first_sequence(log: int) -> int:
    """Return the sequence of a log's first append.

    >>> first_sequence(0)
    1
    """
    return (log << LOG_SHIFT) + 1
