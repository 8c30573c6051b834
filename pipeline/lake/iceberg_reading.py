"""Reading of an Apache Iceberg table by pyiceberg; ``iceberg_lake`` writes one."""

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from gateway.errors import RequestError
from pipeline.lake.place import file_io_options, unavailable
from pipeline.lake.port import position_name
from pipeline.lake.table import LakeTable, TableFile

NAMESPACE: Final = "headgate"
_PATH_PARTS: Final = 4  # data, topic, day, name


def read_iceberg(url: str, job_id: str, catalog: str, topics: Collection[str]) -> LakeTable:
    """Return the table at ``url``; see ``lake_tables.read_table``."""
    catalog = catalog or default_catalog(url)
    check_catalog(catalog)
    place = location(url)
    name = table_name(place)
    missing = RequestError(
        f"{url}: its catalog has no table {NAMESPACE}.{name}: name the catalog's database with "
        "--catalog"
    )
    file = make_url(catalog).database
    if catalog.startswith("sqlite") and not (file and Path(file).exists()):
        raise missing  # rather than create an empty one
    with reaching_catalog(url):
        known = SqlCatalog(
            NAMESPACE, uri=catalog, init_catalog_tables="false", **file_io_options(place)
        )
        try:
            table = known.load_table((NAMESPACE, name))
        except NoSuchTableError:
            raise missing from None
        files = _files(url, table, topics)
    if table.location().rstrip("/") != place:
        raise RequestError(
            f"{url}: its catalog has a table of the name at {table.location()}: name the catalog's "
            "database with --catalog"
        )
    positions = positions_of(table, job_id)
    return LakeTable(url, files, lambda identity: positions.get(position_name(identity)))


def _files(url: str, table: Table, topics: Collection[str]) -> list[TableFile]:
    base = f"{table.location().rstrip('/')}/"
    names = {literal(one) for one in topics}
    chosen = In(term=Reference("topic"), literals=names) if names else AlwaysTrue()
    found = []
    for task in table.scan(row_filter=chosen).plan_files():
        path = task.file.file_path
        if task.delete_files or not path.startswith(base):
            what = "rows of it were deleted" if task.delete_files else f"{path} is elsewhere"
            raise RequestError(f"{url} is not read here: {what}")
        found.append(TableFile(path.removeprefix(base), ""))
    return found


def topic_of(path: str) -> str:
    """Return the topic of a file that an archive wrote, empty for other files.

    >>> topic_of("data/orders/2026-01-31/1f.parquet"), topic_of("data/topic=orders/a/1f.parquet")
    ('orders', '')
    """
    parts = path.split("/")
    is_ours = parts[0] == "data" and len(parts) == _PATH_PARTS and "=" not in parts[1]
    return parts[1] if is_ours else ""


def positions_of(table: Table, job_id: str) -> dict[str, int]:
    """Return a job's positions as of the current snapshot.

    A table that was rolled back has those of that snapshot. After the snapshot that held them has
    expired, the table's property has them.
    """
    name = positions_property(job_id)
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary
        noted = None if summary is None else summary.get(name)
        if noted is not None:
            return dict(json.loads(noted))
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return dict(json.loads(table.properties.get(name, "{}")))


def positions_property(job_id: str) -> str:
    """Return the name of the property of snapshot and table with a job's positions."""
    return f"headgate.positions.{job_id}"


def default_catalog(url: str) -> str:
    """Return the catalog beside a local table. Error: ``RequestError`` for one in a bucket."""
    parts = urlsplit(location(url))
    if parts.scheme != "file":
        raise RequestError(f"{url} is not local: name its catalog's database with --catalog")
    return f"sqlite:///{Path(parts.path)}-catalog.sqlite"


def location(url: str) -> str:
    """Return the table's location in Iceberg's metadata."""
    if urlsplit(url).scheme:
        return url.rstrip("/")
    return f"file://{Path(url).absolute()}"


def table_name(place: str) -> str:
    """Return the table name of a place in a catalog, since a bucket's catalog has many.

    >>> table_name("s3://lake/raw/Orders-eu"), table_name("file:///srv/lake/orders")
    ('lake_raw_orders_eu', 'orders')
    """
    parts = urlsplit(place.rstrip("/"))
    is_local = parts.scheme == "file"
    name = parts.path.rpartition("/")[2] if is_local else parts.netloc + parts.path
    return re.sub(r"[^a-z0-9_]+", "_", name.lower())


def check_catalog(url: str) -> None:
    """Raise ``RequestError`` unless SQLAlchemy accepts a catalog's URL."""
    try:
        make_url(url).get_dialect()
    except (ArgumentError, NoSuchModuleError) as error:
        # The driver's message can contain the URL, and so its password.
        raise RequestError(
            "--catalog is not one of SQLAlchemy's URLs, as in sqlite:////srv/lake.sqlite"
        ) from error


@contextmanager
def reaching_catalog(url: str) -> Iterator[None]:
    """Convert errors of databases, file systems and buckets to ``LakeUnavailable``."""
    try:
        yield
    except SQLAlchemyError as error:
        # The driver's message only: SQLAlchemy's would show the statement.
        raise unavailable(url, getattr(error, "orig", None) or error) from error
    except (OSError, ImportError) as error:  # the latter of a database's driver
        raise unavailable(url, error) from error
