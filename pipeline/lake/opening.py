"""Opening of lake tables by the name of their format."""

from gateway.errors import RequestError
from pipeline.lake.files import ROWS_KIND, TableKind
from pipeline.lake.port import (
    DELTA,
    FORMATS,
    ICEBERG,
    Lake,
    check_catalog_is_iceberg,
    check_format,
)


def open_lake(
    url: str, table_format: str, job_id: str, *, catalog: str = "", kind: TableKind = ROWS_KIND
) -> Lake:
    """Return the table at ``url``, created if missing.

    ``catalog`` is Iceberg's: an SQLAlchemy URL; empty for a file beside a local table.
    Errors: ``OtherSchema``, ``BadPlace``, ``RequestError``, ``LakeUnavailable``.
    """
    if table_format not in FORMATS:
        raise RequestError(f"--format {table_format}: there is {', '.join(FORMATS)}")
    check_catalog_is_iceberg(table_format, catalog)
    check_format(url, table_format)
    if table_format == DELTA:
        from pipeline.lake.delta import DeltaLake

        return DeltaLake(url, job_id, kind)
    if table_format == ICEBERG:
        from pipeline.lake.iceberg import IcebergLake

        return IcebergLake(url, job_id, catalog, kind)
    from pipeline.lake.parquet import ParquetLake

    return ParquetLake(url, job_id, kind)
