"""A gateway whose disk is a bucket of versitygw, with its index in SQLite or PostgreSQL."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.report import Report, interpreter
from benchmarks.sides import temporary_folder
from tests.gateway.postgres import running_postgres
from tests.support.gateway import Gateway
from tests.support.s3_servers import S3Server, versitygw
from tests.support.toolchain import ROOT

SQLITE: Final = "index in SQLite"
POSTGRES: Final = "index in PostgreSQL"
_GO_MOD: Final = ROOT / "tests/storage_adapters/s3/versitygw/go.mod"


@dataclass(frozen=True)
class S3Side:
    """A running gateway and the server that it stores in."""

    gateway: Gateway
    server: S3Server

    def counted(self, name: str, **labels: str) -> float:
        """Return a metric's sum over those of its labels that are not given."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        total = 0.0
        for line in self.gateway.http("/metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            if series.split("{")[0] == name and all(one in series for one in wanted):
                total += float(value)
        return total


@contextmanager
def s3_side(index: str, *, settings: Mapping[str, object] | None = None) -> Iterator[S3Side]:
    """Start server, database and gateway; the bucket is files on this checkout's disk."""
    with ExitStack() as stack:
        folder: Path = stack.enter_context(temporary_folder())
        server = stack.enter_context(versitygw(folder))
        os.environ.update(server.env)
        database: dict[str, object] = {}
        if index == POSTGRES:
            database = {"metadata.url": stack.enter_context(running_postgres())}
        gateway = stack.enter_context(
            Gateway(
                folder / "headgate",
                {
                    **server.settings(),
                    **database,
                    "log.level": "warning",
                    **(settings or {}),
                },
            )
        )
        yield S3Side(gateway, server)


@dataclass(frozen=True)
class S3Report(Report):
    """A benchmark's outcome."""

    def versions(self) -> dict[str, str]:
        """Return the versions of everything that takes part."""
        found = re.search(r"versity/versitygw (v\S+)", _GO_MOD.read_text())
        assert found is not None
        return {
            "headgate": version("headgate"),
            "python": interpreter(),
            "boto3": version("boto3"),
            "versitygw": found.group(1),
            "confluent-kafka": version("confluent-kafka"),
        }
