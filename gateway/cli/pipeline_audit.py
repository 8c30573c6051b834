"""``headgate pipeline audit``: find loss, duplicates and disorder in log and lake."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.cli import options
from gateway.cli import pipeline_options as shared
from gateway.cli.output import print_json, print_rows, say
from gateway.cli.pipeline_options import LAKE_FORMATS
from gateway.cli.progress import Progress, mib
from gateway.cli.settings import settings_of
from gateway.sql.engines import engine_url

if TYPE_CHECKING:
    from pipeline.audit.findings import Finding
    from pipeline.audit.job import Audit
    from pipeline.audit.rows import TableRows

FOUND_STATUS: Final = 3  # of the command: something is wrong
_SHOWN_MAX: Final = 50
_COLUMNS: Final = (
    "kind", "topic", "partition", "first_offset", "last_offset", "count", "example",
)  # fmt: skip


def audit(  # noqa: PLR0913 - the options of the command
    *,
    topic: shared.AnyTopics = None,
    lake: Annotated[
        str | None,
        typer.Option(help="Compare with this table, too: a folder, or s3://bucket/folder."),
    ] = None,
    table_format: Annotated[
        str,
        typer.Option(
            "--format", help=f"The table's, found out unless given: {', '.join(LAKE_FORMATS)}."
        ),
    ] = "",
    catalog: shared.Catalog = "",
    job_id: shared.ArchiveId = "archive",
    deep: Annotated[
        bool, typer.Option("--deep", help="Decode every record too, and check every CRC.")
    ] = False,
    groups: Annotated[
        bool, typer.Option("--groups", help="Check the committed offsets of groups too.")
    ] = False,
    include_unsynced: shared.IncludeUnsynced = False,
    master: shared.Master = shared.LOCAL,
    dry_run: shared.DryRun = False,
    print_submit: shared.PrintSubmit = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Find loss, duplicates and disorder in topics and in their lake table.

    Ends with status 3 when something is wrong, 0 when nothing is. The headers of all batches are
    looked at; records are decoded only with --deep and --lake.
    """
    if table_format:
        shared.check_lake_format(table_format)
    if print_submit:
        shared.print_submit_line()
        return
    from pipeline.spark_session import check_installed

    check_installed(*([] if lake is None else ["deltalake", "pyiceberg"]))
    from pipeline.audit.job import Audit
    from pipeline.log.access import leased, source_options
    from pipeline.log.options import parse_options

    settings = settings_of(config, assignments)
    given = source_options(settings) | {"includeUnsynced": str(include_unsynced)}
    if topic:
        given["topics"] = ",".join(topic)
    url = engine_url(settings.metadata.database_url, settings.node.data_dir)
    chosen = parse_options(given)
    with leased(chosen):
        job = Audit(chosen, url)
        rows: TableRows | None = None
        if lake is not None:
            from pipeline.audit.rows import open_rows

            rows = open_rows(
                lake,
                job_id,
                table_format=table_format,
                catalog=shared.catalog_to_read(lake, catalog, settings),
                topics=topic or (),
            )
        if dry_run:
            shared.print_plan(
                len(job.found),
                job.offsets_planned,
                job.bytes_planned,
                "looked at",
                as_json=as_json,
            )
            return
        progress = Progress(job.bytes_planned)
        with shared.spark("audit", master=master) as session:
            job.run(session, progress.add)
            progress.end()
            if groups:
                job.check_groups()
            if rows is not None:
                job.check_lake(session, rows)
            elif deep:
                job.check_records(session)
    _print_findings(job, as_json=as_json)
    if not job.findings.is_clean:
        raise typer.Exit(FOUND_STATUS)


def _print_findings(job: "Audit", *, as_json: bool) -> None:
    listed = job.findings.listed()
    summary = {
        "clean": job.findings.is_clean,
        "partitions": len(job.counts),
        "batches": sum(one.batches for one in job.counts),
        "records": sum(one.records for one in job.counts),
        "bytes": sum(one.bytes for one in job.counts),
        "rows_compared": job.rows_compared,
        "totals": dict(sorted(job.findings.totals.items())),
    }
    if as_json:
        partitions = [one._asdict() for one in job.counts]
        print_json({**summary, "counts": partitions, "findings": _dicts(listed)})
        return
    wrong = [one for one in listed if one.is_wrong]
    told = [one for one in listed if not one.is_wrong]
    _print_table("wrong", wrong)
    _print_table("worth knowing, and no error", told)
    say(
        f"{summary['records']:,} records in {summary['batches']:,} batches of "
        f"{summary['partitions']} partition(s), {mib(sum(one.bytes for one in job.counts))}"
        + (f"; {job.rows_compared:,} rows of the table compared" if job.rows_compared else "")
    )
    say("nothing is wrong" if job.findings.is_clean else _wrong_line(job))


def _print_table(title: str, found: "Sequence[Finding]") -> None:
    if not found:
        return
    say(f"{title}:")
    print_rows(_dicts(found[:_SHOWN_MAX]), _COLUMNS, as_json=False)
    if len(found) > _SHOWN_MAX:
        say(f"... and {len(found) - _SHOWN_MAX:,} more; --json has them")
    say("")


def _wrong_line(job: "Audit") -> str:
    from pipeline.audit.findings import WRONG

    parts = [
        f"{count:,} {kind}"
        for kind, count in sorted(job.findings.totals.items())
        if kind in WRONG
    ]
    return f"WRONG: {', '.join(parts)}"


def _dicts(found: "Sequence[Finding]") -> list[dict[str, Any]]:
    return [one.as_row() for one in found]
