"""By this package Spark finds ``format("headgate")`` without registration."""

from pipeline.source import HeadgateSource as DefaultSource

__all__ = ["DefaultSource"]
