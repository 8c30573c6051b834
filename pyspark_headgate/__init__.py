"""Package by which Spark finds ``format("headgate")`` without registration.

When a script imports it before its session begins, Spark runs the script's own Python, and
not the first ``python3`` of the PATH, which may not have Headgate.
"""

import os
import sys

from pipeline.source.data_source import HeadgateSource as DefaultSource

__all__ = ["DefaultSource"]

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
