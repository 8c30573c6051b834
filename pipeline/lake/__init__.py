"""Lake tables: Delta Lake, Apache Iceberg, and plain Parquet with manifests."""
