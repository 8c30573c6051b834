"""Job ``compact``: merges of small objects in a bucket."""
