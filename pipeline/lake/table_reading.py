"""Reading of lake tables of any format: their files and positions.

Nothing here writes: a missing table is not created.
"""

from collections.abc import Collection
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from gateway.errors import RequestError
from pipeline.lake.place import open_place, reaching, storage_options, unavailable
from pipeline.lake.port import (
    DELTA,
    ICEBERG,
    check_catalog_is_iceberg,
    delta_position_name,
    format_of,
    position_name,
)
from pipeline.lake.table import LakeTable, TableFile

_UNREADABLE: Final = frozenset({"deletionVectors", "columnMapping"})


def read_table(
    url: str, *, job_id: str = "", catalog: str = "", topics: Collection[str] = ()
) -> LakeTable | None:
    """Return the table at ``url``, or None.

    ``job_id``: the archive whose positions are read. ``catalog``: see ``open_lake``.
    ``topics``: files without any of them may be left out; all when it is empty.
    Errors: ``RequestError`` for unsupported tables, ``BadPlace``, ``LakeUnavailable``.
    """
    kind = format_of(url)
    if kind is None:
        return None
    check_catalog_is_iceberg(kind, catalog)
    if kind == DELTA:
        found = _delta(url, job_id)
    elif kind == ICEBERG:
        from pipeline.lake.iceberg_reading import read_iceberg

        found = read_iceberg(url, job_id, catalog, topics)
    else:
        found = _parquet(url, job_id)
    files = [one for one in found.files if not (topics and one.topic) or one.topic in topics]
    return found._replace(files=files)


def _delta(url: str, job_id: str) -> LakeTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(url, storage_options=storage_options(url))
        odd = _UNREADABLE & set(table.protocol().reader_features or ())
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    except (DeltaError, OSError) as error:
        raise unavailable(url, error) from error
    if odd:
        raise RequestError(f"{url} uses {', '.join(sorted(odd))}, which is not read here")
    files = [
        TableFile(unquote(one["path"]), one.get("partition.topic") or "") for one in actions
    ]
    return LakeTable(
        url,
        files,
        lambda identity: table.transaction_version(delta_position_name(job_id, identity)),
    )


def _parquet(url: str, job_id: str) -> LakeTable:
    from pipeline.lake.parquet import read_content

    with reaching(url):
        content = read_content(open_place(url))
    positions = content.positions.get(job_id, {})
    return LakeTable(
        url,
        [TableFile(one.path, one.topic) for one in content.files.values()],
        lambda identity: positions.get(position_name(identity)),
    )
