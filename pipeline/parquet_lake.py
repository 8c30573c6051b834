"""Public import path of ``files``, which lists the files of a plain Parquet table."""

from pipeline.lake.parquet import files

__all__ = ["files"]
