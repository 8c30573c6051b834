"""A gateway whose log is in a bucket, and what jobs are told to find it."""

import dataclasses
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from gateway.clock import SystemClock
from gateway.config.loader import load_settings
from pipeline.log import s3_log
from pipeline.log.access import source_options
from pipeline.log.options import Options, parse_options
from storage_adapters.s3.change import Change, NewObject
from storage_adapters.s3.index import Index
from storage_adapters.s3.state import object_key
from tests.support.gateway import Gateway
from tests.support.s3_servers import S3Server

# No object is merged and none deleted unless a test says so.
_SETTINGS: dict[str, object] = {
    "storage.flush_interval_ms": 50,
    "storage.merge_objects_min": 1_000,
    "storage.merge_after_ms": 3_600_000,
}


class S3Gateway(NamedTuple):
    """``server`` has the bucket of this gateway alone. ``named``: the options of the source."""

    gateway: Gateway
    server: S3Server
    named: dict[str, str]

    @property
    def bootstrap(self) -> str:
        return self.gateway.bootstrap

    def options(self, **more: str) -> Options:
        return parse_options(self.named | more)


@contextmanager
def s3_gateway(server: S3Server, folder: Path, **settings: object) -> Iterator[S3Gateway]:
    """Run a gateway over a new bucket until the block ends."""
    own = dataclasses.replace(server, bucket=server.new_bucket())
    said = _SETTINGS | own.settings(prefix="gw/")
    said |= {f"storage.{name}": value for name, value in settings.items()}
    data_dir = folder / "data"
    loaded = load_settings(
        file=None,
        assignments=[f"node.data_dir={data_dir}", *(f"{key}={said[key]}" for key in said)],
        environment={},
    )
    with Gateway(data_dir, said) as gateway:
        yield S3Gateway(gateway, own, source_options(loaded))


def move_objects(options: Options, *, with_keys: bool = True) -> None:
    """Put all live objects elsewhere, as merging does; the old ones are deleted ``with_keys``.

    No node may run: this takes its place.
    """
    place = options.s3
    assert place is not None
    bucket = s3_log.bucket_of(place)
    with closing(Index(place.catalog, clock=SystemClock())) as index:
        index.open(create=False)
        loaded = index.load().objects
        epoch, _, numbers = index.take_over(1, reserve=len(loaded))
        for (stored, parts), number in zip(loaded, numbers, strict=True):
            old = object_key(place.prefix, stored.number, stored.epoch)
            new = object_key(place.prefix, number, epoch)
            etag = bucket.put(new, [bucket.get(old, 0, stored.size_bytes)])
            rows = index.rows(stored.number)
            assert rows is not None
            moved = NewObject(
                stored._replace(number=number, epoch=epoch, etag=etag),
                [one._replace(extent=one.extent._replace(number=number)) for one in parts],
                rows,
            )
            index.commit(epoch, Change(added=(moved,), gone=(stored.number,)))
            if with_keys:
                assert not bucket.delete([old])
