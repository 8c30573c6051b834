"""The log in a bucket as jobs read it, without Spark: what is asked for, and what may go away."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from gateway.clock import SystemClock
from gateway.errors import OffsetOutOfRange, StorageUnavailable
from pipeline.log import access, s3_log, s3_object
from pipeline.log.options import Options, S3Place
from pipeline.log.reading import BrokenSplit, read_split
from pipeline.log.row_schema import ROWS
from pipeline.log.s3_object import GET_BYTES_MAX
from pipeline.log.splits import Split, ending_positions, plan, starting_positions, wanted
from storage_adapters.formats.footer import decode_trailer
from storage_adapters.s3.index import Index
from tests.pipeline.producing import produce
from tests.pipeline.s3_gateway import S3Gateway, move_objects, s3_gateway
from tests.support.s3_servers import S3Server
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

VALUE_BYTES = 90_000
APPENDED = "headgate_appended_records_total"
_TIME_IN_ROW = 8  # of the footer: nothing else would tell that it is another


@pytest.fixture(scope="module")
def shared(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Gateway]:
    with s3_gateway(s3, tmp_path_factory.mktemp("gateway")) as running:
        yield running


def one_object(count: int) -> dict[str, object]:
    """Return settings by which so many values of ``VALUE_BYTES`` close one object.

    Each is a batch of its own: all but the last, with what is around them, are less.
    """
    return {"flush_interval_ms": 60_000, "object_bytes": count * VALUE_BYTES}


def _splits(options: Options) -> list[Split]:
    found = wanted(access.views(options), options)
    start, end = starting_positions(found, options), ending_positions(found, options)
    return plan(found, start, end, options)


def _rows(splits: list[Split], options: Options) -> list[tuple[int, int, int]]:
    """Return (partition, offset, number) of all rows."""
    schema = pa.schema(
        [field for field in ROWS if field.name in {"partition", "offset", "value"}]
    )
    return [
        (row["partition"], row["offset"], int(row["value"][:8]))
        for split in splits
        for rows in read_split(split, options, schema)
        for row in rows.to_pylist()
    ]


def _place(options: Options) -> S3Place:
    assert options.s3 is not None
    return options.s3


def _gets(options: Options) -> int:
    return s3_log.bucket_of(_place(options)).statistics.requests.get("get", 0)


def test_every_row_is_there_once_in_order(shared: S3Gateway) -> None:
    topic = create_topic(shared.bootstrap, partitions=3)
    for first in range(0, 3_000, 500):
        produce(shared.bootstrap, topic, range(first, first + 500))
    options = shared.options(topics=topic)

    rows = _rows(_splits(options), options)

    assert sorted(number for _, _, number in rows) == list(range(3_000))
    for partition in range(3):
        offsets = [offset for number, offset, _ in rows if number == partition]
        assert offsets == list(range(len(offsets)))


def test_an_object_of_many_partitions_takes_one_request(shared: S3Gateway) -> None:
    topic = create_topic(shared.bootstrap, partitions=12)
    produce(shared.bootstrap, topic, range(600))
    options = shared.options(topics=topic)
    splits = _splits(options)
    objects = {piece.extent.path for split in splits for piece in split.pieces}
    before = _gets(options)

    rows = _rows(splits, options)

    assert len(rows) == 600
    assert len(splits) == 1  # small objects share a task
    assert _gets(options) - before == len(objects)


def test_an_object_that_is_opened_for_each_partition_is_fetched_twice(
    shared: S3Gateway,
) -> None:
    topic = create_topic(shared.bootstrap, partitions=12)
    produce(shared.bootstrap, topic, range(600))
    options = shared.options(topics=topic)
    pieces = [piece for split in _splits(options) for piece in split.pieces]
    path = pieces[0].extent.path
    of_one = [piece for piece in pieces if piece.extent.path == path]
    assert len(of_one) > 2
    before = _gets(options)

    rows = [row for piece in of_one for row in _rows([Split([piece])], options)]

    assert len(rows) == sum(piece.extent.end - piece.extent.first for piece in of_one)
    assert _gets(options) - before == 2


def test_of_a_large_object_only_what_is_wanted_is_fetched(s3: S3Server, tmp_path: Path) -> None:
    with s3_gateway(s3, tmp_path, **one_object(200)) as own:
        wide, narrow = create_topic(own.bootstrap), create_topic(own.bootstrap)
        before = own.gateway.metric(APPENDED)
        with ThreadPoolExecutor(2) as threads:  # one object has both
            few = threads.submit(produce, own.bootstrap, narrow, range(10))
            wait_until(
                lambda: own.gateway.metric(APPENDED) >= before + 10, within_s=60, what="few"
            )
            produce(own.bootstrap, wide, range(200), value_bytes=VALUE_BYTES)
            few.result()
        options = own.options(topics=narrow)
        (extent,) = [piece.extent for piece in _splits(options)[0].pieces]
        assert extent.file_bytes > 2 * GET_BYTES_MAX
        bucket = s3_log.bucket_of(_place(options))
        before = bucket.statistics.received_bytes

        rows = _rows(_splits(options), options)

        assert [number for _, _, number in rows] == list(range(10))
        assert bucket.statistics.received_bytes - before < 400_000
        whole = own.options(topics=wide)
        assert [n for _, _, n in _rows(_splits(whole), whole)] == list(range(200))
        parts = own.options(topics=wide, splitBytes="1000000")
        assert len(_splits(parts)) > 10
        assert [n for _, _, n in _rows(_splits(parts), parts)] == list(range(200))


def test_offsets_are_found_where_merging_has_put_them(s3: S3Server, tmp_path: Path) -> None:
    with s3_gateway(s3, tmp_path) as own:
        topic = create_topic(own.bootstrap, partitions=2)
        for first in range(0, 400, 100):
            produce(own.bootstrap, topic, range(first, first + 100))
        options = own.options(topics=topic, splitBytes="2000")
        splits = _splits(options)
        own.gateway.stop()

        move_objects(options)

        rows = _rows(splits, options)
        assert sorted(number for _, _, number in rows) == list(range(400))


def test_rows_that_were_read_before_their_object_went_come_once(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_object, "GET_BYTES_MAX", 1 << 20)  # so that many are left to do
    with s3_gateway(s3, tmp_path, **one_object(200)) as own:
        topic = create_topic(own.bootstrap)
        produce(own.bootstrap, topic, range(200), value_bytes=VALUE_BYTES)
        options = own.options(topics=topic)
        (split,) = _splits(options)
        assert split.pieces[0].extent.file_bytes > 12 << 20
        own.gateway.stop()
        schema = pa.schema([ROWS.field("offset")])

        batches = read_split(split, options, schema)
        offsets = next(batches).column("offset").to_pylist()
        move_objects(options)
        offsets += [offset for rows in batches for offset in rows.column("offset").to_pylist()]

        assert offsets == list(range(200))


def test_what_a_lease_holds_is_not_deleted_before_it_ends(s3: S3Server, tmp_path: Path) -> None:
    with s3_gateway(s3, tmp_path) as own:
        topic = create_topic(own.bootstrap)
        produce(own.bootstrap, topic, range(10))
        options = own.options(topics=topic)
        lease = access.Lease(options)
        assert lease.renew() == lease.renew()
        with access.leased(options):
            own.gateway.stop()
            move_objects(options, with_keys=False)

            assert not _dead(own)
            lease.end()
            assert not _dead(own)

        assert _dead(own)


def _dead(own: S3Gateway) -> list[tuple[int, int]]:
    with closing(Index(own.named["catalog"], clock=SystemClock())) as index:
        index.open(create=False)
        return index.dead(before_unix_ms=1 << 60, limit=10)


def test_an_object_that_somebody_deleted_is_an_error_that_says_so(
    s3: S3Server, tmp_path: Path
) -> None:
    with s3_gateway(s3, tmp_path) as own:
        topic = create_topic(own.bootstrap)
        produce(own.bootstrap, topic, range(10))
        options = own.options(topics=topic)
        splits = _splits(options)
        path = splits[0].pieces[0].extent.path
        with closing(own.server.client()) as client:
            client.delete_object(Bucket=own.server.bucket, Key=path.split("/", 3)[3])

        with pytest.raises(
            StorageUnavailable, match=f"{path} is not in the bucket, and the index"
        ):
            _rows(splits, options)


def test_a_deleted_topic_fails_loudly(s3: S3Server, tmp_path: Path) -> None:
    with s3_gateway(s3, tmp_path) as own:
        topic = create_topic(own.bootstrap)
        produce(own.bootstrap, topic, range(10))
        options = own.options(topics=topic)
        (split,) = _splits(options)
        gone = split.pieces[0].extent._replace(partition_id=999)

        with pytest.raises(OffsetOutOfRange, match="partition 999 was deleted"):
            access.find_again(options, gone)


def test_bytes_that_changed_are_found_and_named(s3: S3Server, tmp_path: Path) -> None:
    with s3_gateway(s3, tmp_path) as own:
        topic = create_topic(own.bootstrap)
        produce(own.bootstrap, topic, range(50))
        options = own.options(topics=topic)
        splits = _splits(options)
        path = splits[0].pieces[0].extent.path
        with closing(own.server.client()) as client:
            key = {"Bucket": own.server.bucket, "Key": path.split("/", 3)[3]}
            data = bytearray(client.get_object(**key)["Body"].read())
            data[400] ^= 0xFF
            client.put_object(**key, Body=bytes(data))

        with pytest.raises(BrokenSplit, match=rf"{path}.*CRC.*Restore the object"):
            _rows(splits, options)


def test_a_footer_that_changed_is_found_before_a_row_is_read(
    s3: S3Server, tmp_path: Path
) -> None:
    with s3_gateway(s3, tmp_path) as own:
        topic = create_topic(own.bootstrap)
        produce(own.bootstrap, topic, range(50))
        options = own.options(topics=topic)
        splits = _splits(options)
        path = splits[0].pieces[0].extent.path
        with closing(own.server.client()) as client:
            key = {"Bucket": own.server.bucket, "Key": path.split("/", 3)[3]}
            data = bytearray(client.get_object(**key)["Body"].read())
            data[decode_trailer(data).footer_at + _TIME_IN_ROW] ^= 0xFF
            client.put_object(**key, Body=bytes(data))

        with pytest.raises(
            StorageUnavailable, match=rf"{path}: the CRC of the footer.*restore"
        ):
            _rows(splits, options)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"catalog": "sqlite:////nonexistent/metadata.sqlite"}, "nonexistent"),
        ({"catalog": "postgres-of-mine"}, "the database's URL is not one of SQLAlchemy's"),
        ({"bucket": "another-bucket"}, "another-bucket"),
        ({"endpointUrl": "http://127.0.0.1:1"}, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_reached_is_named(
    shared: S3Gateway, changed: dict[str, str], said: str
) -> None:
    topic = create_topic(shared.bootstrap)
    produce(shared.bootstrap, topic, range(3))
    options = shared.options(**changed)

    with pytest.raises(StorageUnavailable, match=said):
        _rows(_splits(options), options)
