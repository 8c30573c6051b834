"""``headgate pipeline archive``: copy topics into a lake table, each record once."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.cli import options
from gateway.cli import pipeline_options as shared
from gateway.cli.output import print_json, say
from gateway.cli.pipeline_hold import begin_hold
from gateway.cli.pipeline_options import LAKE_FORMATS
from gateway.cli.progress import MIB, Progress, mib
from gateway.cli.settings import settings_of

if TYPE_CHECKING:
    from pipeline.archive.job import ArchiveRound
    from pipeline.lake.compaction import Compacted

_WRITERS: Final = {"delta": "deltalake", "iceberg": "pyiceberg", "parquet": "boto3"}
_MS_PER_S: Final = 1_000


def archive(  # noqa: PLR0913 - the options of the command
    *,
    topic: shared.Topics,
    to: Annotated[str, typer.Option(help="The table: a folder, or s3://bucket/folder.")],
    table_format: Annotated[
        str, typer.Option("--format", help=f"One of {', '.join(LAKE_FORMATS)}.")
    ] = "delta",
    job_id: shared.ArchiveId = "archive",
    catalog: shared.Catalog = "",
    master: shared.Master = shared.LOCAL,
    round_mib: Annotated[
        int, typer.Option(min=1, help="Read for one commit of the table, about.")
    ] = 2_048,
    file_mib: Annotated[
        int,
        typer.Option(min=1, help="Size at which a file is closed and the next one started."),
    ] = 512,
    file_s: Annotated[
        int, typer.Option(min=1, help="Age at which an open file is closed.")
    ] = 600,
    compact_files: Annotated[
        bool, typer.Option(help="Merge small files of the table afterwards.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(help="Go on where retention removed records before they were archived."),
    ] = False,
    hold: Annotated[
        bool,
        typer.Option(
            "--hold",
            help="Commit the table's offsets to the node, as the group archive.ID; topics with "
            "archive.hold=archive.ID keep records that are not in it.",
        ),
    ] = False,
    dry_run: shared.DryRun = False,
    print_submit: shared.PrintSubmit = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Copy topics into a lake table, each record once.

    Rows are partitioned by topic and day. What was archived is noted in the commits that add the
    rows, so that the next run, or one after a crash, goes on where the table is.
    """
    shared.check_lake_format(table_format)
    if print_submit:
        shared.print_submit_line()
        return
    from pipeline.spark_session import check_installed

    check_installed(_WRITERS[table_format])
    from pipeline.archive.job import Archive
    from pipeline.archive.split_files import FileLimits
    from pipeline.lake.compaction import compact_files as compact
    from pipeline.lake.opening import open_lake
    from pipeline.lake.port import format_of
    from pipeline.log.access import leased, source_options
    from pipeline.log.options import parse_options

    settings = settings_of(config, assignments)
    given = {"topics": ",".join(topic), "failOnDataLoss": str(not accept_loss)}
    chosen = parse_options(source_options(settings) | given)
    if table_format == "iceberg":
        catalog = catalog or shared.catalog_of(to, settings)
    with leased(chosen):
        is_new = dry_run and format_of(to) is None  # a dry run makes no table
        lake = None if is_new else open_lake(to, table_format, job_id, catalog=catalog)
        limits = FileLimits(file_mib * MIB, file_s * _MS_PER_S)
        job = Archive(chosen, lake, round_bytes_max=round_mib * MIB, limits=limits)
        post = begin_hold(settings, job_id, job.starts(), holds=hold and not dry_run)
        if dry_run or not (job.records_planned or compact_files):
            _print_plan(job.records_planned, job.bytes_planned, as_json=as_json)
            return
        assert lake is not None
        rounds: list[ArchiveRound] = []
        progress = Progress(job.bytes_planned)

        def on_round(one: "ArchiveRound") -> None:
            rounds.append(one)
            progress.add(one.bytes_read)
            post(one.positions)

        compacted: Compacted | None = None
        with shared.spark("archive", master=master) as session:
            job.run(session, on_round)
            progress.end()
            if compact_files:
                compacted = compact(session, lake, file_bytes=limits.bytes_max)
    _print_summary(rounds, compacted, to, as_json=as_json)


def _print_plan(records: int, size_bytes: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"records": records, "bytes_read": size_bytes, "rows": 0})
    elif records:
        say(f"{records:,} records, {mib(size_bytes)} of the log, are to be archived")
    else:
        say("nothing new to archive")


def _print_summary(
    rounds: "list[ArchiveRound]", compacted: "Compacted | None", to: str, *, as_json: bool
) -> None:
    found: dict[str, Any] = {
        "rows": sum(one.rows for one in rounds),
        "files": sum(one.files for one in rounds),
        "commits": len(rounds),
        "bytes_read": sum(one.bytes_read for one in rounds),
        "bytes_written": sum(one.bytes_written for one in rounds),
        "bad_batches": sum(one.bad_batches for one in rounds),
    }
    if as_json:
        print_json(found if compacted is None else {**found, "compacted": compacted._asdict()})
        return
    say(
        f"archived {found['rows']:,} rows into {to}: {found['files']} file(s), "
        f"{mib(found['bytes_written'])} of {mib(found['bytes_read'])}, "
        f"{found['commits']} commit(s)"
    )
    if found["bad_batches"]:
        say(f"{found['bad_batches']} batch(es) could not be decoded; see {to}-dead-letters")
    if compacted is not None:
        say(
            f"made {compacted.files_before} small file(s) into {compacted.files_after}: "
            f"{mib(compacted.bytes_before)} into {mib(compacted.bytes_after)}"
        )
