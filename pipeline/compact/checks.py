"""Checks of ``compact`` before it begins: other users of the data, and the released sequence."""

from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from gateway.errors import StorageUnavailable
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.records.codec import iter_records
from gateway.sql.engines import make_engine, one_line
from pipeline.log.options import S3Place
from pipeline.log.s3_log import open_extents, read_view

PRODUCERS: Final = TopicName(DEFAULT_NAMESPACE, "__producers")  # as in gateway.producers
SEQUENCE_KEY: Final = b"sequence"


def other_sessions(s3: S3Place) -> int:
    """Return the number of other sessions of the same user in the database; 0 if unknown.

    Error: ``StorageUnavailable``.
    """
    try:
        engine = make_engine(s3.catalog, create=False)
        if engine.dialect.name != "postgresql":
            return (
                0  # a file: its node is on this machine, and is checked by its admin endpoint
            )
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND usename = current_user AND pid <> pg_backend_pid()"
        )
        try:
            with engine.connect() as connection:
                return int(connection.scalar(text(query)) or 0)
        finally:
            engine.dispose()
    except (SQLAlchemyError, OSError) as error:
        raise StorageUnavailable(f"the metadata database: {one_line(error)}") from error


def released_sequence(s3: S3Place) -> int:
    """Return the sequence from which the next start of a node reads headers of the log.

    The node stores it in an internal topic when it has idempotent producers to store; 0 before.
    Errors: ``StorageUnavailable``, ``CorruptBatch``.
    """
    for view in read_view(s3).values():
        if view.identity.topic != PRODUCERS:
            continue
        for extent in reversed(view.extents):
            with open_extents(s3, extent.path, [extent]) as reader:
                found = [
                    record.value
                    for _, batch in reader.batches(extent)
                    for record in iter_records(batch)
                    if record.key == SEQUENCE_KEY and record.value is not None
                ]
            if found:
                return int.from_bytes(found[-1], "big")
    return 0
