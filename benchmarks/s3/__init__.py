"""Shared code of the S3 storage's benchmarks."""
