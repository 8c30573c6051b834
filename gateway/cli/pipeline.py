"""``headgate pipeline``: jobs on Spark over a node's data, which need nothing of the node."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gateway.cli import options
from gateway.cli.admin_client import settings_of
from gateway.cli.output import print_json, say
from gateway.errors import RequestError

if TYPE_CHECKING:
    from pipeline.archive import Round

_MIB: Final = 1_048_576
_FORMATS: Final = ("delta",)

pipeline_app = typer.Typer(no_args_is_help=True, help="Jobs on Spark: topics as lake tables.")


@pipeline_app.callback()
def _pipeline() -> None:
    """Group the commands."""


@pipeline_app.command()
def archive(  # noqa: PLR0913 - the options of the command
    *,
    topic: Annotated[list[str], typer.Option(help="A topic; may be given again.")],
    to: Annotated[str, typer.Option(help="The table: a folder, or s3://bucket/folder.")],
    table_format: Annotated[
        str, typer.Option("--format", help=f"One of {', '.join(_FORMATS)}.")
    ] = "delta",
    job_id: Annotated[
        str, typer.Option("--id", help="Whose positions in the table count.")
    ] = "archive",
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    round_mib: Annotated[
        int, typer.Option(min=1, help="Read for one commit of the table, about.")
    ] = 2_048,
    accept_loss: Annotated[
        bool, typer.Option(help="Go on where retention removed what was not archived.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Say what would be archived.")] = False,
    print_submit: Annotated[
        bool, typer.Option(help="Print the same job as a spark-submit, and end.")
    ] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Bring topics into a lake table, each record once.

    Rows are partitioned by topic and day. What was archived is noted in the commits that add the
    rows, so that the next run, or one after a crash, goes on where the table is.
    """
    if table_format not in _FORMATS:
        raise RequestError(f"--format {table_format}: there is {', '.join(_FORMATS)}")
    if print_submit:
        say(_submit(sys.argv[1:]))
        return
    from pipeline.archive import Archive
    from pipeline.delta_lake import DeltaLake
    from pipeline.options import parse_options
    from pipeline.spark_session import start_spark

    settings = settings_of(config, assignments)
    chosen = parse_options(
        {
            "path": str(settings.node.data_dir),
            "topics": ",".join(topic),
            "failOnDataLoss": str(not accept_loss),
        }
    )
    job = Archive(chosen, DeltaLake(to, job_id), round_bytes_max=round_mib * _MIB)
    if dry_run or not job.records_planned:
        _print_plan(job.records_planned, job.bytes_planned, as_json=as_json)
        return
    rounds: list[Round] = []

    def on_round(one: "Round") -> None:
        rounds.append(one)
        if sys.stderr.isatty():
            done_bytes = sum(one.bytes_read for one in rounds)
            sys.stderr.write(f"\r{_mib(done_bytes)} of {_mib(job.bytes_planned)} ")

    job.run(start_spark("headgate-archive", master=master), on_round)
    _print_summary(rounds, to, as_json=as_json)


def _submit(arguments: list[str]) -> str:
    """Return the same job for ``spark-submit``, which brings a master of its own."""
    job = arguments[arguments.index("archive") :]
    kept = [one for one in job if one != "--print-submit"]
    program = str(Path(__file__).resolve().parents[2] / "pipeline/submit.py")
    return shlex.join(
        ["spark-submit", "--master", "spark://HOST:7077", program, *kept, "--master=submitted"]
    )


def _print_plan(records: int, size_bytes: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"records": records, "bytes_read": size_bytes, "rows": 0})
    elif records:
        say(f"{records:,} records, {_mib(size_bytes)} of the log, are to be archived")
    else:
        say("nothing new to archive")


def _print_summary(rounds: "list[Round]", to: str, *, as_json: bool) -> None:
    found = {
        "rows": sum(one.rows for one in rounds),
        "files": sum(one.files for one in rounds),
        "commits": len(rounds),
        "bytes_read": sum(one.bytes_read for one in rounds),
        "bytes_written": sum(one.bytes_written for one in rounds),
        "bad_batches": sum(one.bad_batches for one in rounds),
    }
    if as_json:
        print_json(found)
        return
    say(
        f"archived {found['rows']:,} rows into {to}: {found['files']} file(s), "
        f"{_mib(found['bytes_written'])} of {_mib(found['bytes_read'])}, "
        f"{found['commits']} commit(s)"
    )
    if found["bad_batches"]:
        say(f"{found['bad_batches']} batch(es) could not be decoded; see {to}-dead-letters")


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:,.1f} MiB"
