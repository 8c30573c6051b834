"""``headgate pipeline backfill``: send the records of a lake table to topics again."""

import secrets
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli import options
from gateway.cli import pipeline_options as shared
from gateway.cli import pipeline_resend as resend
from gateway.cli.output import note, print_json, print_rows, say
from gateway.cli.progress import Progress
from gateway.cli.settings import settings_of
from gateway.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.resend.backfill import Backfilled, Source
    from pipeline.resend.endpoint import Endpoint


def backfill(  # noqa: PLR0913 - the options of the command
    *,
    table: Annotated[
        str, typer.Option("--from", help="The table: a folder, or s3://bucket/folder.")
    ],
    catalog: shared.Catalog = "",
    topic: shared.AnyTopics = None,
    to: Annotated[str, typer.Option(help="Target topic, not the one of the same name.")] = "",
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Create missing topics, with as many partitions as in the table.",
        ),
    ] = False,
    keep_partitions: Annotated[
        bool,
        typer.Option(
            "--keep-partitions",
            help="Keep each record's partition.",
        ),
    ] = False,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this partition; may be given again.")
    ] = None,
    first_offset: Annotated[
        int, typer.Option("--from-offset", min=-1, help="Only from this offset on.")
    ] = -1,
    end_offset: Annotated[
        int, typer.Option("--to-offset", min=-1, help="Only below this offset.")
    ] = -1,
    since: Annotated[
        str, typer.Option(help="Only records from this time on: ISO 8601 or unix ms.")
    ] = "",
    until: Annotated[str, typer.Option(help="Only records before this time.")] = "",
    job_id: resend.JobId = "",
    rate: resend.Rate = 0,
    bootstrap: resend.Bootstrap = "",
    user: resend.User = "",
    ca_file: resend.CaFile = None,
    master: shared.Master = shared.LOCAL,
    dry_run: shared.DryRun = False,
    print_submit: shared.PrintSubmit = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Send the records of a lake table to topics again, in order.

    They keep key, value, headers and timestamp, and get a header `headgate.backfill` with the id
    of the run and where they were. A run that was killed goes on where it was when it is given
    the same --id, on any machine.
    """
    if print_submit:
        shared.print_submit_line()
        return
    from pipeline.spark_session import check_installed

    check_installed("confluent_kafka", "deltalake", "pyiceberg")
    from pipeline.log.options import parse_options
    from pipeline.resend.backfill import Plan, find_sources, missing_targets, run, target_counts
    from pipeline.resend.backfill_files import RowChoice, table_files
    from pipeline.resend.endpoint import endpoint_of
    from pipeline.resend.job_state import check_id

    settings = settings_of(config, assignments)
    endpoint = endpoint_of(settings, bootstrap=bootstrap, user=user, ca_file=ca_file)
    times = {"startingTime": since, "endingTime": until}
    given = parse_options(
        {"path": table} | {name: text for name, text in times.items() if text}
    )
    choice = RowChoice(
        frozenset(topic or ()),
        frozenset(partition or ()),
        first_offset,
        end_offset,
        given.start_unix_ms,
        given.end_unix_ms,
    )
    plan = Plan(
        url=table,
        files=table_files(
            table, choice, catalog=shared.catalog_to_read(table, catalog, settings)
        ),
        choice=choice,
        job_id=check_id(job_id or secrets.token_hex(4)),
        is_new=not job_id,
        to=to,
        keeps_partitions=keep_partitions,
        rate_per_s=rate,
    )
    # What is wrong is said before Spark starts, as far as it is known.
    if to not in {"", *endpoint.partition_counts()} and not create:
        raise RequestError(f"--to {to}: there is no such topic; --create makes it")
    with shared.spark("backfill", master=master, once=True) as session:
        sources = find_sources(session, plan)
        total = sum(one.records for one in sources)
        if dry_run or not total:
            _print_plan(sources, to, as_json=as_json)
            return
        if create:
            _create(endpoint, missing_targets(plan, sources, endpoint))
        target_counts(plan, sources, endpoint)
        sys.stderr.write(f"backfill {plan.job_id}: --id {plan.job_id} goes on where it was\n")
        progress = Progress(total, unit="records")
        done = run(session, plan, sources, endpoint, progress.add)
        progress.end()
    _print_done(plan.job_id, done, as_json=as_json)


def _create(endpoint: "Endpoint", missing: "Mapping[str, int]") -> None:
    endpoint.create_topics(missing)
    for topic, count in missing.items():
        note(f"created {topic} with {count} partition(s)")


def _print_plan(sources: "list[Source]", to: str, *, as_json: bool) -> None:
    rows = [{**one._asdict(), "to": to or one.topic} for one in sources]
    if rows or as_json:
        print_rows(rows, ["topic", "partition", "records", "to"], as_json=as_json)
    if not as_json:
        total = sum(one.records for one in sources)
        say(f"{total:,} records of {len(sources)} partition(s) are to be sent")


def _print_done(job_id: str, done: "Backfilled", *, as_json: bool) -> None:
    if as_json:
        print_json({"id": job_id, **done._asdict()})
        return
    say(f"backfill {job_id}: sent {done.sent:,} records")
    if done.sent_before:
        say(f"  {done.sent_before:,} had been sent by this id before")
    if done.restamped:
        say(f"  {done.restamped:,} had the time 0, and have the time of sending now")
