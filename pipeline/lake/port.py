"""Port of lake tables of all formats.

All formats give the same guarantee: a commit adds files and moves the positions of partitions in
one atomic step, and of two runs with one job id only one succeeds.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from gateway.errors import GatewayError, RequestError
from gateway.model import PartitionIdentity
from pipeline.lake.files import LakeFile, Layout
from pipeline.lake.place import open_place, reaching

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
PARQUET: Final = "parquet"
FORMATS: Final = (DELTA, ICEBERG, PARQUET)
BAD_SUFFIX: Final = "-dead-letters"
# Metadata folder of each format; none occurs in a table of another format.
_MARKS: Final = {DELTA: "_delta_log", ICEBERG: "metadata", PARQUET: "_headgate"}


class Overtaken(GatewayError):
    """Another run with the same job id has committed first."""


class OtherSchema(RequestError):
    """The existing table has another schema."""


class Lake(Protocol):
    """One table, created at its first use. Errors of all calls: ``LakeUnavailable``."""

    url: str
    layout: Layout

    def position(self, identity: PartitionIdentity) -> int | None:
        """Return the next offset of a partition to archive, None before the first."""
        ...

    def commit(
        self, files: Sequence[LakeFile], positions: Mapping[PartitionIdentity, int]
    ) -> None:
        """Add files and move positions atomically. Error: ``Overtaken``."""
        ...

    def dead_letters(self) -> "Lake":
        """Return the table of the same job id for batches that cannot be decoded."""
        ...


def format_of(url: str) -> str | None:
    """Return the format of the table at ``url``, None without a table.

    Errors: ``BadPlace``, ``LakeUnavailable``.
    """
    place = open_place(url)
    with reaching(url):
        return next((name for name, mark in _MARKS.items() if place.has_folder(mark)), None)


def overtaken(url: str, job_id: str) -> Overtaken:
    """Return the error for a run whose positions another run has moved."""
    return Overtaken(
        f"{url}: another archive with the id {job_id!r} has written to it meanwhile: what this "
        "run has committed counts, and the other goes on from there"
    )


def check_columns(url: str, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Raise ``OtherSchema`` unless all columns exist with these types; others are allowed."""
    wrong = [
        f"{name} is {found.get(name, 'missing')}, not {wanted}"
        for name, wanted in expected.items()
        if found.get(name) != wanted
    ]
    if wrong:
        raise OtherSchema(
            f"{url} is there with another schema ({'; '.join(wrong)}): give another folder"
        )


def position_name(identity: PartitionIdentity) -> str:
    """Return a partition's name in positions.

    It has the topic's uuid, since a topic that is created again begins at offset 0.
    """
    return f"{identity.topic_uuid}/{identity.number}"


def delta_position_name(job_id: str, identity: PartitionIdentity) -> str:
    """Return the name of a job's partition in Delta's application transactions."""
    return f"headgate/{job_id}/{position_name(identity)}"


def bad_url(url: str) -> str:
    """Return the place of a table's dead letters."""
    return f"{url.rstrip('/')}{BAD_SUFFIX}"


def check_catalog_is_iceberg(table_format: str, catalog: str) -> None:
    """Raise ``RequestError`` for a catalog of a format without catalogs."""
    if catalog and table_format != ICEBERG:
        raise RequestError(f"--catalog is Iceberg's; {table_format} has none")


def check_format(url: str, table_format: str) -> None:
    """Raise ``RequestError`` when the table has another format."""
    found = format_of(url)
    if found not in {None, table_format}:
        raise RequestError(
            f"{url} is a table of the format {found}, not {table_format}: give --format {found}, "
            "or another folder"
        )
