"""Metrics with a bounded number of series: topics, queues, groups, the node itself."""
