"""By this package Spark finds ``format("headgate")`` without registration.

A script that imports it before its session begins tells Spark to run the script's own Python, and
not the first ``python3`` of the PATH, which may not have Headgate.
"""

import os
import sys

from pipeline.source import HeadgateSource as DefaultSource

__all__ = ["DefaultSource"]

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
