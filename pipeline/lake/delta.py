"""Delta Lake table whose commits hold both the added rows and the positions of partitions.

Delta's own application transactions hold the positions: one for each partition, named after the
job, its version the next offset. They are part of the commit, and a commit fails after a newer
one with the same name. So rows and positions change together, and of two jobs of one name only
one succeeds.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from gateway.clock import SystemClock
from gateway.model import PartitionIdentity
from pipeline.lake.expected_positions import ExpectedPositions
from pipeline.lake.files import BAD_KIND, ROWS_KIND, LakeFile, Layout, TableKind
from pipeline.lake.place import LakeUnavailable, storage_options, unavailable
from pipeline.lake.port import (
    OtherSchema,
    bad_url,
    check_columns,
    delta_position_name,
    overtaken,
)

PARTITIONED_BY: Final = ["topic", "day"]
_ZSTD: Final = WriterProperties(compression="ZSTD")
_TRIES_MAX: Final = 5  # concurrent commits of others


class DeltaLake:
    """A ``Lake``; see there."""

    def __init__(self, url: str, job_id: str, kind: TableKind = ROWS_KIND) -> None:
        self.url = url
        columns = kind.columns
        self._partitioned_by = PARTITIONED_BY if kind.by_day else []
        self.layout = Layout(
            pa.schema([field for field in columns if field.name not in self._partitioned_by]),
            in_path=kind.by_day,
        )
        self._job_id = job_id
        self._expected = ExpectedPositions(self._position)
        wanted = columns.append(pa.field("day", pa.date32())) if kind.by_day else columns
        try:
            self._table = DeltaTable.create(
                url,
                schema=wanted,
                mode="ignore",
                partition_by=self._partitioned_by or None,
                storage_options=storage_options(url),
            )
        except (DeltaError, OSError) as error:
            raise unavailable(url, error) from error
        self._check_schema(Schema.from_arrow(wanted))

    def position(self, identity: PartitionIdentity) -> int | None:
        """See ``Lake``."""
        return self._expected.read(self._name(identity))

    def commit(
        self, files: Sequence[LakeFile], positions: Mapping[PartitionIdentity, int]
    ) -> None:
        """See ``Lake``."""
        moved = {self._name(identity): offset for identity, offset in positions.items()}
        actions = self._actions(files)
        for _ in range(_TRIES_MAX):
            self._check_positions(moved)
            try:
                self._table.create_write_transaction(
                    actions,
                    "append",
                    self._table.schema(),  # with columns that the user has added
                    self._partitioned_by,
                    commit_properties=CommitProperties(
                        app_transactions=[Transaction(*one) for one in moved.items()]
                    ),
                )
                self._expected.move(moved)
                self._table.update_incremental()
            except CommitFailedError:
                # Of this job, which `_check_positions` finds, or of another that changed the
                # table's columns.
                self._overtake_unless_same(moved)
            except (DeltaError, OSError) as error:
                raise unavailable(self.url, error) from error
            else:
                return
        raise LakeUnavailable(f"{self.url}: others change the table faster than rows are added")

    def compact(self, *, file_bytes: int) -> tuple[int, int, int, int]:
        """Merge small files by delta-rs itself.

        Returns number and size of the rewritten files before and after. Error: ``LakeUnavailable``.
        """
        try:
            done = self._table.optimize.compact(target_size=file_bytes, writer_properties=_ZSTD)
        except (DeltaError, OSError) as error:
            raise unavailable(self.url, error) from error
        before, after = (json.loads(done[name]) for name in ("filesRemoved", "filesAdded"))
        return (
            done["numFilesRemoved"],
            done["numFilesAdded"],
            before["totalSize"],
            after["totalSize"],
        )

    def dead_letters(self) -> "DeltaLake":
        """See ``Lake``."""
        return DeltaLake(bad_url(self.url), self._job_id, BAD_KIND)

    def _actions(self, files: Sequence[LakeFile]) -> list[AddAction | RemoveAction]:
        now_unix_ms = SystemClock().unix_ms()
        is_divided = bool(self._partitioned_by)
        return [
            AddAction(
                path=file.path,
                size=file.size_bytes,
                partition_values={"topic": file.topic, "day": file.day} if is_divided else {},
                modification_time=now_unix_ms,
                data_change=True,
                stats=file.stats,
            )
            for file in files
        ]

    def _position(self, name: str) -> int | None:
        return self._table.transaction_version(name)

    def _overtake_unless_same(self, moved: Mapping[str, int]) -> None:
        """Reload the table. Error: ``Overtaken`` when it has other positions."""
        self._expected.add_missing(moved)
        self._table.update_incremental()
        self._check_positions(moved)

    def _check_positions(self, moved: Mapping[str, int]) -> None:
        """Raise ``Overtaken`` when a position differs from the one that this run read or wrote."""
        if self._expected.differ(moved):
            raise overtaken(self.url, self._job_id)

    def _check_schema(self, wanted: Schema) -> None:
        check_columns(self.url, _texts(self._table.schema()), _texts(wanted))
        partitioned_by = self._table.metadata().partition_columns
        if partitioned_by != self._partitioned_by:
            raise OtherSchema(
                f"{self.url} is partitioned by {', '.join(partitioned_by) or 'nothing'}, not by "
                f"{', '.join(self._partitioned_by) or 'nothing'}: give another folder"
            )

    def _name(self, identity: PartitionIdentity) -> str:
        return delta_position_name(self._job_id, identity)


def _texts(schema: Schema) -> dict[str, str]:
    """Return column types as texts that are equal for equal types."""
    return {field.name: field.type.to_json().strip('"') for field in schema.fields}
