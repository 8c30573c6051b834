"""What the benchmarks of the storage in S3 share."""
