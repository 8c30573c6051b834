"""Shared parts of the ``headgate pipeline`` jobs: options, Spark, progress, and texts.

Spark and Arrow are imported only when a job begins, so that ``--help`` stays quick.
"""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from gateway.cli.output import fail, print_json, say
from gateway.cli.progress import mib
from gateway.config.settings import Settings
from gateway.errors import RequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
LAKE_FORMATS: Final = ("delta", "iceberg", "parquet")
_CLUSTER: Final = "spark://HOST:7077"
_GROUP: Final = "pipeline"
_HIDDEN: Final = "***"
_PASSWORDS: Final = (
    re.compile(r"(://[^/?#@\s:]*:)\S+(?=@)"),
    re.compile(r"([?&](?:ssl)?password=)[^&#\s]+"),
)

Topics = Annotated[list[str], typer.Option("--topic", help="A topic; may be given again.")]
AnyTopics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="A topic; may be given again; all unless given."),
]
ArchiveId = Annotated[
    str, typer.Option("--id", help="Id of the archive whose positions are used.")
]
Catalog = Annotated[
    str,
    typer.Option(
        help="Iceberg's catalog, an SQLAlchemy URL. Unless given: a file beside a local table, the "
        "node's metadata database for one in a bucket."
    ),
]
IncludeUnsynced = Annotated[
    bool, typer.Option(help="Also entries that are written but not known to be synced.")
]
Master = Annotated[str, typer.Option(help="Spark master: `local[*]` or a cluster's URL.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and exit.")]
PrintSubmit = Annotated[
    bool,
    typer.Option("--print-submit", help="Print the spark-submit command and exit."),
]


def catalog_of(table: str, settings: Settings) -> str:
    """Return Iceberg's catalog for a table in a bucket; empty for a local table."""
    from gateway.sql.engines import engine_url

    is_bucket = urlsplit(table).scheme not in {"", "file"}
    data_dir = settings.node.data_dir.absolute()
    return engine_url(settings.metadata.database_url, data_dir) if is_bucket else ""


def catalog_to_read(table: str, given: str, settings: Settings) -> str:
    """Return the catalog of a table that may be one of Iceberg's, empty unless it is.

    Errors: ``BadPlace``, ``LakeUnavailable``.
    """
    from pipeline.lake.port import ICEBERG, format_of

    found = catalog_of(table, settings)
    return given or (found if found and format_of(table) == ICEBERG else "")


def check_lake_format(name: str) -> None:
    """Raise ``RequestError`` for a ``--format`` that lake tables do not have."""
    if name not in LAKE_FORMATS:
        raise RequestError(f"--format {name}: there is {', '.join(LAKE_FORMATS)}")


def print_submit_line() -> None:
    """Print the command that runs as the same job for ``spark-submit``, without passwords.

    Spark shows a driver's command line to whoever may look at the job, and so does the machine.
    """
    arguments = sys.argv[1:]
    shown = [without_password(one) for one in arguments]
    say(submit_line(shown))
    if shown != arguments:
        fail(f"{_HIDDEN} stands for a password: name a --config FILE that has it instead")


def without_password(argument: str) -> str:
    """Return an argument without the password of a URL in it.

    >>> without_password("--set=metadata.url=postgresql+psycopg://me:it%40@db:5432/headgate")
    '--set=metadata.url=postgresql+psycopg://me:***@db:5432/headgate'
    >>> without_password("postgresql://db/headgate?user=me&password=it&sslmode=require")
    'postgresql://db/headgate?user=me&password=***&sslmode=require'
    """
    for pattern in _PASSWORDS:
        argument = pattern.sub(rf"\1{_HIDDEN}", argument)
    return argument


def submit_line(arguments: Sequence[str]) -> str:
    """Return the ``spark-submit`` command of a job.

    >>> line = submit_line(["pipeline", "audit", "--print-submit", "--master", "spark://a:1"])
    >>> line.replace(_submit_program(), "submit.py")
    'spark-submit --master spark://a:1 submit.py audit --master=submitted'
    """
    job: list[str] = []
    master = _CLUSTER
    rest = iter(arguments[arguments.index(_GROUP) + 1 :])
    for one in rest:
        if one == "--master":
            master = next(rest, master)
        elif one.startswith("--master="):
            master = one.partition("=")[2]
        elif one != "--print-submit":
            job.append(one)
    if master.startswith("local"):
        master = _CLUSTER
    return shlex.join(
        ["spark-submit", "--master", master, _submit_program(), *job, "--master=submitted"]
    )


def _submit_program() -> str:
    return str(Path(__file__).resolve().parents[2] / "pipeline/submit.py")


@contextmanager
def spark(job: str, *, master: str, once: bool = False) -> "Iterator[SparkSession]":
    """Provide a job's Spark session and stop it afterwards. ``once``: see ``start_spark``.

    Errors: ``SparkMissing``, ``JobFailed``.
    """
    from pipeline.spark_session import one_line, start_spark

    session = start_spark(f"headgate-{job}", master=master, once=once)
    try:
        with one_line():
            yield session
    finally:
        session.stop()


def print_plan(
    partitions: int, offsets: int, size_bytes: int, verb: str, *, as_json: bool
) -> None:
    """Print what a job would read. ``verb``: a participle, "counted" for instance."""
    if as_json:
        print_json({"partitions": partitions, "offsets": offsets, "bytes": size_bytes})
        return
    say(
        f"{offsets:,} offsets of {partitions} partition(s), "
        f"{mib(size_bytes)} of the log, are to be {verb}"
    )
