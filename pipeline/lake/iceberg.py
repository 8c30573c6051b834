"""Apache Iceberg table by pyiceberg, without a jar or any service except the catalog's database.

A commit adds files (as they are, ``add_files``) in one snapshot whose properties hold the position
of each partition. A property of the table holds them, too, and outlives the expiry of snapshots. A
commit names the snapshot on which it builds; after a concurrent commit the positions are checked
again: moved ones end the run, otherwise it tries again.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform

from gateway.errors import RequestError
from gateway.model import PartitionIdentity
from pipeline.lake.expected_positions import ExpectedPositions
from pipeline.lake.files import BAD_KIND, ROWS_KIND, LakeFile, Layout, TableKind
from pipeline.lake.iceberg_reading import (
    NAMESPACE,
    check_catalog,
    default_catalog,
    location,
    positions_of,
    positions_property,
    reaching_catalog,
    table_name,
    topic_of,
)
from pipeline.lake.merging import OneFile
from pipeline.lake.place import LakeUnavailable, file_io_options
from pipeline.lake.port import OtherSchema, bad_url, check_columns, overtaken, position_name

_TRIES_MAX: Final = 20  # concurrent commits of others
_BY_TOPIC_AND_DAY: Final = (("topic", "identity"), ("timestamp", "day"))
_PROPERTIES: Final = {
    # A table's metadata is written whole with each commit.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
# pyiceberg alone would rebase a failed commit on the concurrent one, without checking the
# # positions.
_NO_RETRIES: Final = {"commit.retry.num-retries": "0"}


class IcebergLake:
    """A ``Lake``; see there. ``catalog``: see ``open_lake``."""

    def __init__(
        self, url: str, job_id: str, catalog: str = "", kind: TableKind = ROWS_KIND
    ) -> None:
        self.url = url
        self.layout = Layout(kind.columns, in_path=False)
        self._kind = kind
        self._job_id = job_id
        self._location = location(url)
        self._catalog_url = catalog or default_catalog(url)
        self._expected = ExpectedPositions(self._position)
        check_catalog(self._catalog_url)
        if not catalog:
            Path(urlsplit(self._location).path).parent.mkdir(parents=True, exist_ok=True)
        with reaching_catalog(url):
            self._catalog = SqlCatalog(
                NAMESPACE, uri=self._catalog_url, **file_io_options(self._location)
            )
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
            self._table = self._load(creates=True)
        self._positions = self._read_positions()
        self._check_table()

    @property
    def table(self) -> Table:
        """Table as last read."""
        return self._table

    def position(self, identity: PartitionIdentity) -> int | None:
        """See ``Lake``."""
        return self._expected.read(position_name(identity))

    def commit(
        self, files: Sequence[LakeFile], positions: Mapping[PartitionIdentity, int]
    ) -> None:
        """See ``Lake``."""
        moved = {position_name(identity): offset for identity, offset in positions.items()}
        self._expected.add_missing(moved)
        paths = [f"{self._location}/{file.path}" for file in files]
        with reaching_catalog(self.url):
            for _ in range(_TRIES_MAX):
                if self._expected.differ(moved):
                    raise overtaken(self.url, self._job_id)
                try:
                    self._add(paths, {**self._positions, **moved})
                except CommitFailedException:
                    self._table = self._load()
                    self._positions = self._read_positions()
                else:
                    self._positions |= moved
                    self._expected.move(moved)
                    return
        raise LakeUnavailable(f"{self.url}: others commit faster than rows are added")

    def dead_letters(self) -> "IcebergLake":
        """See ``Lake``. The table is in the same catalog."""
        return IcebergLake(bad_url(self.url), self._job_id, self._catalog_url, BAD_KIND)

    def listed(self) -> list[OneFile]:
        """Return the table's files for a compaction.

        Files with deleted rows and files of other writers are left out.
        """
        found = []
        with reaching_catalog(self.url):
            for task in self._table.scan().plan_files():
                path = task.file.file_path.removeprefix(f"{self._location}/")
                topic = topic_of(path)
                if topic and not task.delete_files:
                    day = path.split("/")[2]
                    found.append(OneFile(path, topic, day, task.file.file_size_in_bytes))
        return found

    def replace(self, old: Sequence[str], new: Sequence[LakeFile]) -> None:
        """Replace files by others with the same rows. Error: ``Overtaken``.

        pyiceberg has no operation for it: the snapshot is an overwrite, of these files and no
        others, and it fails when any other commit has come first.
        """
        gone = {f"{self._location}/{path}" for path in old}
        table = self._table
        try:
            with reaching_catalog(self.url), table.transaction() as transaction:
                replaced = [
                    task.file
                    for task in table.scan().plan_files()
                    if task.file.file_path in gone
                ]
                with transaction.update_snapshot().overwrite() as snapshot:
                    for file in replaced:
                        snapshot.delete_data_file(file)
                    for one in new:
                        path = f"{self._location}/{one.path}"
                        snapshot.append_data_file(
                            parquet_file_to_data_file(table.io, table.metadata, path)
                        )
        except CommitFailedException as error:
            raise overtaken(self.url, self._job_id) from error
        self._forbid_retries(self._table)

    def _add(self, paths: list[str], positions: Mapping[str, int]) -> None:
        noted = {positions_property(self._job_id): json.dumps(positions, separators=(",", ":"))}
        with self._table.transaction() as transaction:
            transaction.add_files(paths, snapshot_properties=noted, check_duplicate_files=False)
            transaction.set_properties(noted)
        self._forbid_retries(self._table)

    def _position(self, name: str) -> int | None:
        return self._positions.get(name)

    def _read_positions(self) -> dict[str, int]:
        return positions_of(self._table, self._job_id)

    def _load(self, *, creates: bool = False) -> Table:
        name = (NAMESPACE, table_name(self._location))
        try:
            table = self._catalog.load_table(name)
        except NoSuchTableError:
            if not creates:
                raise LakeUnavailable(f"{self.url} was dropped from its catalog") from None
            table = self._create(name)
        self._forbid_retries(table)
        return table

    def _create(self, name: tuple[str, str]) -> Table:
        """Create the partitioned table in one step; another run may do so at the same time."""
        try:
            with self._catalog.create_table_transaction(
                name, self._kind.columns, location=self._location, properties=_PROPERTIES
            ) as transaction:
                if self._kind.by_day:
                    with transaction.update_spec() as spec:
                        spec.add_field("topic", IdentityTransform(), "topic")
                        spec.add_field("timestamp", DayTransform(), "day")
        except (TableAlreadyExistsError, CommitFailedException):
            pass
        return self._catalog.load_table(name)

    @staticmethod
    def _forbid_retries(table: Table) -> None:
        """Disable retries of this object only; the table's own properties stay."""
        metadata = table.metadata
        table.metadata = metadata.model_copy(
            update={"properties": {**metadata.properties, **_NO_RETRIES}}
        )

    def _check_table(self) -> None:
        """Check the table. Errors: ``OtherSchema``, ``RequestError`` for a name already taken."""
        table = self._table
        if table.location().rstrip("/") != self._location:
            raise RequestError(
                f"the catalog has {'.'.join(table.name())} at {table.location()} already: give "
                "--catalog another database, or the folder another name"
            )
        found = {one.name: _text(str(one.type)) for one in table.schema().as_arrow()}
        check_columns(
            self.url, found, {one.name: _text(str(one.type)) for one in self._kind.columns}
        )
        if _divisions(table.spec(), table) != (_BY_TOPIC_AND_DAY if self._kind.by_day else ()):
            raise OtherSchema(
                f"{self.url} is not partitioned by topic and the day of timestamp: give another "
                "folder"
            )


def _divisions(spec: PartitionSpec, table: Table) -> tuple[tuple[str, str], ...]:
    return tuple(
        (table.schema().find_column_name(one.source_id) or "", str(one.transform))
        for one in spec.fields
    )


def _text(arrow_type: str) -> str:
    """Return a type's text with Arrow's alternative names normalized."""
    return arrow_type.replace("large_", "").replace("<item:", "<element:")
