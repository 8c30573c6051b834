"""A Delta Lake table that keeps, in the commits that add rows, how far each partition has come.

Delta's own application transactions hold the positions: one for each partition, named after the
job, its version the next offset. They are part of the commit, and a commit that another one
with the same name has overtaken fails. So rows and positions are one, and of two jobs of one
name only one gets on.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from gateway.errors import GatewayError
from gateway.model import PartitionIdentity
from pipeline.lake_files import ROWS, LakeFile
from pipeline.lake_places import storage_options
from pipeline.reading import BadBatch

TABLE: Final = ROWS.append(pa.field("day", pa.date32()))
BAD: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("number", pa.int32()),
        ("base_offset", pa.int64()),
        ("reason", pa.string()),
        ("octets", pa.binary()),
    ]
)
BAD_SUFFIX: Final = "-dead-letters"
PARTITIONED_BY: Final = ["topic", "day"]
_MS_PER_S: Final = 1_000


class Overtaken(GatewayError):
    """Another run with the same job id has committed meanwhile."""


class DeltaLake:
    """One table, made at the first use."""

    def __init__(self, url: str, job_id: str) -> None:
        self.url = url
        self._job_id = job_id
        self._table = DeltaTable.create(
            url,
            schema=TABLE,
            mode="ignore",
            partition_by=PARTITIONED_BY,
            storage_options=storage_options(url),
        )

    def position(self, identity: PartitionIdentity) -> int | None:
        """Return the next offset of a partition to archive, None when none ever was."""
        return self._table.transaction_version(self._name(identity))

    def commit(
        self, files: Sequence[LakeFile], positions: Mapping[PartitionIdentity, int]
    ) -> None:
        """Add files and move positions, both or neither. Error: ``Overtaken``."""
        now_unix_ms = int(time.time() * _MS_PER_S)  # noqa: TID251 - when the files were made
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                path=file.path,
                size=file.size_bytes,
                partition_values={"topic": file.topic, "day": file.day},
                modification_time=now_unix_ms,
                data_change=True,
                stats=file.stats,
            )
            for file in files
        ]
        moved = [
            Transaction(self._name(identity), offset) for identity, offset in positions.items()
        ]
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                TABLE,
                PARTITIONED_BY,
                commit_properties=CommitProperties(app_transactions=moved),
            )
        except CommitFailedError as error:
            raise Overtaken(
                f"{self.url}: another archive with the id {self._job_id!r} writes to it: {error}"
            ) from error
        self._table.update_incremental()

    def keep_bad(
        self, bad: Sequence[BadBatch], positions: Mapping[PartitionIdentity, int]
    ) -> None:
        """Keep what could not be decoded, as it is, in a table beside this one.

        It comes before the commit that passes over it. Should that never come, the batches are
        known by their offsets when they come again.
        """
        if not bad:
            return
        url = f"{self.url}{BAD_SUFFIX}"
        options = storage_options(url)
        table = DeltaTable.create(url, schema=BAD, mode="ignore", storage_options=options)
        names = {(one.topic.name, one.number): self._name(one) for one in positions}
        rows, moved = [], {}
        for one in sorted(bad):
            name = names[one.topic, one.number]
            if one.base_offset >= (table.transaction_version(name) or 0):
                rows.append(one._asdict())
                moved[name] = one.base_offset + 1
        if rows:
            write_deltalake(
                table,
                pa.Table.from_pylist(rows, schema=BAD),
                mode="append",
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(*one) for one in moved.items()]
                ),
            )

    def _name(self, identity: PartitionIdentity) -> str:
        # By uuid: a topic that is deleted and made anew begins at offset 0 again.
        return f"headgate/{self._job_id}/{identity.topic_uuid}/{identity.number}"
