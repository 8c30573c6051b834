"""``headgate pipeline report``: traffic, sizes and lateness, as tables and as one HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.cli import options
from gateway.cli import pipeline_options as shared
from gateway.cli.output import note, print_json, print_rows, say
from gateway.cli.progress import MIB, Progress, mib
from gateway.cli.settings import settings_of
from gateway.clock import SystemClock
from gateway.errors import RequestError
from gateway.last_report import write_last_report

if TYPE_CHECKING:
    from pipeline.report.job import Figures, SizeBin, Traffic

_TOPIC_COLUMNS: Final = (
    "topic", "protocol", "records", "decoded", "stored", "batches", "per_batch", "keys",
    "size_p50", "size_p95", "size_p99", "late_p99", "overdue_p99",
)  # fmt: skip
_TIME_COLUMNS: Final = (
    "time", "protocol", "topic", "records", "decoded", "stored", "size_p99",
)  # fmt: skip
_SIZE_COLUMNS: Final = ("bytes", "protocol", "records", "share")
_SHOWN_MAX: Final = 20
_KEPT_MAX: Final = 100  # topics in the console's copy
_SPLIT_BYTES: Final = 16 * MIB  # of a task, by which progress is told


def report(  # noqa: PLR0913 - the options of the command
    *,
    topic: shared.AnyTopics = None,
    since: Annotated[
        str | None, typer.Option(help="Records from this time on: ISO 8601, or unix ms.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Records before this time.")] = None,
    per: Annotated[int, typer.Option(min=1, help="Minutes of one step.")] = 1,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with plots there, too.")
    ] = None,
    include_unsynced: shared.IncludeUnsynced = False,
    master: shared.Master = shared.LOCAL,
    dry_run: shared.DryRun = False,
    print_submit: shared.PrintSubmit = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Count records, bytes, batches, keys and sizes by minute, topic and protocol.

    With --html the same as one page with plots, which needs no network to be looked at.
    """
    if print_submit:
        shared.print_submit_line()
        return
    from pipeline.spark_session import check_installed

    check_installed(*([] if html is None else ["matplotlib"]))
    if html is not None and not html.absolute().parent.is_dir():
        raise RequestError(f"--html {html}: there is no folder {html.absolute().parent}")
    from pipeline.log.access import leased, source_options
    from pipeline.log.options import parse_options
    from pipeline.report.job import Report

    settings = settings_of(config, assignments)
    given = {
        "topics": ",".join(topic) if topic else None,
        "startingTime": since,
        "endingTime": until,
        "includeUnsynced": str(include_unsynced),
        "splitBytes": str(_SPLIT_BYTES),
    }
    chosen = parse_options(
        source_options(settings) | {name: one for name, one in given.items() if one is not None}
    )
    with leased(chosen):
        job = Report(chosen, bucket_minutes=per)
        if dry_run:
            shared.print_plan(
                job.partitions,
                job.offsets_planned,
                job.bytes_planned,
                "counted",
                as_json=as_json,
            )
            return
        note(f"counting {mib(job.bytes_planned)} of {job.partitions} partition(s)")
        clock = SystemClock()
        started_ms = clock.monotonic_ms()
        progress = Progress(job.bytes_planned)
        with shared.spark("report", master=master) as session:
            figures = job.run(session, progress.add)
        progress.end()
    _keep(
        settings.node.data_dir,
        _kept(
            figures,
            source=chosen.described,
            ended_unix_ms=clock.unix_ms(),
            took_ms=clock.monotonic_ms() - started_ms,
        ),
    )
    if html is not None:
        from pipeline.report.page import page_of

        page = page_of(figures, source=chosen.described, made_unix_ms=clock.unix_ms())
        html.write_text(page, encoding="utf-8")
    _print_figures(figures, html, as_json=as_json)


def _keep(data_dir: Path, document: dict[str, Any]) -> None:
    """Leave the report for the node's console; without it the job has succeeded all the same."""
    try:
        write_last_report(data_dir, document)
    except OSError as error:
        note(f"the console does not get this report: {error}")


def _kept(
    figures: "Figures", *, source: str, ended_unix_ms: int, took_ms: int
) -> dict[str, Any]:
    """Return the part of a report that the console shows."""
    return {
        "job": "report",
        "source": source,
        "ended_unix_ms": ended_unix_ms,
        "took_ms": took_ms,
        "total": _plain(figures.total),
        "by_topic": [_plain(one) for one in figures.by_topic[:_KEPT_MAX]],
        "row_count": len(figures.by_topic),
        "topic_count": len({one.topic for one in figures.by_topic}),
    }


def _print_figures(figures: "Figures", html: Path | None, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(figures))
        return
    print_rows(map(_topic_row, figures.by_topic[:_SHOWN_MAX]), _TOPIC_COLUMNS, as_json=False)
    _print_more(len(figures.by_topic))
    say("")
    busiest = sorted(figures.by_time, key=lambda one: -one.records)[:_SHOWN_MAX]
    if busiest:
        say("the busiest:")
        print_rows(map(_time_row, busiest), _TIME_COLUMNS, as_json=False)
        _print_more(len(figures.by_time))
        say("")
    if figures.sizes:
        say("sizes of records:")
        rows = [_size_row(one, figures.total.records) for one in figures.sizes]
        print_rows(rows, _SIZE_COLUMNS, as_json=False)
        say("")
    _print_total(figures.total)
    if html is not None:
        say(f"the page is {html}")


def _print_more(count: int) -> None:
    if count > _SHOWN_MAX:
        say(f"... and {count - _SHOWN_MAX:,} more; --json and --html have them")


def _print_total(total: "Traffic") -> None:
    from pipeline.report.texts import bytes_text

    say(
        f"{total.records:,} records, {bytes_text(total.decoded_bytes)} decoded and "
        f"{bytes_text(total.stored_bytes)} as stored, in {total.batches:,.0f} batches of "
        f"{total.records_per_batch:,.1f} records; {total.keys:,} keys (± 2 %)"
    )
    if total.undecodable:
        say(f"{total.undecodable:,} batch(es) cannot be decoded, and are counted in nothing")


def _topic_row(one: "Traffic") -> dict[str, Any]:
    from pipeline.report.texts import bytes_text, ms_text

    p50, p95, p99 = (
        None if size_bytes is None else bytes_text(size_bytes) for size_bytes in one.size_bytes
    )
    late, overdue = one.late_ms.p99, one.overdue_ms.p99
    return {
        "topic": one.topic,
        "protocol": one.protocol,
        "records": f"{one.records:,}",
        "decoded": bytes_text(one.decoded_bytes),
        "stored": bytes_text(one.stored_bytes),
        "batches": f"{one.batches:,.0f}",
        "per_batch": f"{one.records_per_batch:,.1f}",
        "keys": f"{one.keys:,}",
        "size_p50": p50,
        "size_p95": p95,
        "size_p99": p99,
        "late_p99": None if late is None else ms_text(late),
        "overdue_p99": None if overdue is None else ms_text(overdue),
    }


def _time_row(one: "Traffic") -> dict[str, Any]:
    from pipeline.report.texts import moment_text

    return _topic_row(one) | {"time": moment_text(one.unix_ms or 0)}


def _size_row(one: "SizeBin", total: int) -> dict[str, Any]:
    return {
        "bytes": f"{one.bytes_min:,} to {one.bytes_max:,}",
        "protocol": one.protocol,
        "records": f"{one.records:,}",
        "share": f"{100 * one.records / total:.1f} %",
    }


def _document(figures: "Figures") -> dict[str, Any]:
    return {
        "total": _plain(figures.total),
        "by_topic": [_plain(one) for one in figures.by_topic],
        "by_time": [_plain(one) for one in figures.by_time],
        "sizes": [
            {**one._asdict(), "bytes_min": one.bytes_min, "bytes_max": one.bytes_max}
            for one in figures.sizes
        ],
        "step_ms": figures.bucket_ms,
    }


def _plain(one: "Traffic") -> dict[str, Any]:
    return {
        name: value._asdict()
        if isinstance(value, tuple) and hasattr(value, "_asdict")
        else value
        for name, value in one._asdict().items()
    }
