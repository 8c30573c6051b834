"""``headgate pipeline snapshot``: the latest value of each key of a topic, as Parquet or Delta."""

from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli import options
from gateway.cli import pipeline_options as shared
from gateway.cli.output import print_json, say
from gateway.cli.progress import Progress, mib
from gateway.cli.settings import settings_of
from gateway.sql.engines import engine_url

if TYPE_CHECKING:
    from pipeline.snapshot.job import Snapshot, Taken

_LACKS = (
    "the topic is compacted: values that were the latest at that moment may have been taken out "
    "since"
)


def snapshot(  # noqa: PLR0913 - the options of the command
    *,
    topic: Annotated[str, typer.Option(help="The topic.")],
    to: Annotated[str, typer.Option(help="A folder, or s3://bucket/folder.")],
    table_format: Annotated[
        str,
        typer.Option(
            "--format", help="parquet: a new folder. delta: a table, whose rows are replaced."
        ),
    ] = "parquet",
    as_of: Annotated[
        str | None,
        typer.Option(
            help="The topic as it was: a time (ISO 8601, unix ms) by which records were "
            'made, or offsets before which they lie, {"TOPIC": {"0": 17}}.'
        ),
    ] = None,
    across_partitions: Annotated[
        bool,
        typer.Option(
            help="A key may be in several partitions: its latest record by time counts."
        ),
    ] = False,
    include_unsynced: shared.IncludeUnsynced = False,
    master: shared.Master = shared.LOCAL,
    dry_run: shared.DryRun = False,
    print_submit: shared.PrintSubmit = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Write the latest value of each key of a topic, as compaction would keep it.

    A record without a value removes its key; records without a key are left out.
    """
    if print_submit:
        shared.print_submit_line()
        return
    from pipeline.spark_session import check_installed

    check_installed(*(["deltalake"] if table_format == "delta" else []))
    from pipeline.log.access import leased, source_options
    from pipeline.log.options import parse_options
    from pipeline.snapshot import job as job_module
    from pipeline.snapshot.targets import open_target

    settings = settings_of(config, assignments)
    given = source_options(settings) | {
        "topics": topic,
        "includeUnsynced": str(include_unsynced),
    }
    moment = job_module.as_of(as_of)
    target = open_target(to, table_format)
    target.check()
    url = engine_url(settings.metadata.database_url, settings.node.data_dir)
    with leased(parse_options(given)):
        job = job_module.Snapshot(given, moment, metadata_url=url)
        if dry_run:
            _print_plan(job, as_json=as_json)
            return
        progress = Progress(job.bytes_planned)
        with shared.spark("snapshot", master=master) as session:
            taken = job.run(session, target, progress.add, across_partitions=across_partitions)
        progress.end()
    _print_summary(job, taken, to, as_json=as_json)


def _print_plan(job: "Snapshot", *, as_json: bool) -> None:
    shared.print_plan(
        job.partitions, job.offsets_planned, job.bytes_planned, "read", as_json=as_json
    )
    if job.may_lack and not as_json:
        say(_LACKS)


def _print_summary(job: "Snapshot", taken: "Taken", to: str, *, as_json: bool) -> None:
    if as_json:
        ends = {str(number): end for number, end in job.ends.items()}
        print_json({**taken._asdict(), "offsets": ends, "may_lack": job.may_lack})
        return
    say(
        f"{taken.keys:,} keys of {taken.records:,} records are in {to}: {taken.files} file(s), "
        f"{mib(taken.bytes_written)}"
    )
    say(
        f"{taken.removed:,} keys were removed by their last record, "
        f"{taken.unkeyed:,} records have no key"
    )
    if job.may_lack:
        say(_LACKS)
