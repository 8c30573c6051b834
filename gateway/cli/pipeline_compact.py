"""``headgate pipeline compact``: merge small objects of a bucket."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli import options
from gateway.cli import pipeline_options as shared
from gateway.cli.admin_client import NodeUnreachable, Refused
from gateway.cli.output import print_json, say
from gateway.cli.progress import MIB, Progress, mib
from gateway.cli.settings import client_of, settings_of
from gateway.clock import SystemClock
from gateway.config.settings import Settings
from gateway.errors import RequestError

if TYPE_CHECKING:
    from pipeline.compact.job import Merged, Planned
    from pipeline.log.options import S3Place


def compact(  # noqa: PLR0913 - the options of the command
    *,
    object_mib: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Merged at a time, and held in memory by a task; the storage's merge_bytes_max "
            "unless given.",
        ),
    ] = None,
    take_over: Annotated[
        bool, typer.Option(help="Go on although a node seems to run; that node will stop.")
    ] = False,
    master: shared.Master = shared.LOCAL,
    dry_run: shared.DryRun = False,
    print_submit: shared.PrintSubmit = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Merge small objects in S3, while no node runs.

    A running node merges by itself; this is for more than one machine should do: a bucket that was
    written with merging held back, say. The data is taken over as a starting node does: one that
    runs nevertheless can commit nothing more, and stops.
    """
    if print_submit:
        shared.print_submit_line()
        return
    from pipeline.compact.job import Compaction
    from pipeline.log.access import source_options
    from pipeline.log.options import parse_options
    from storage_adapters.s3.config import S3Config

    settings = settings_of(config, assignments)
    storage = settings.storage.options
    place = parse_options(source_options(settings)).s3
    if place is None or not isinstance(storage, S3Config):
        raise RequestError(
            "compact merges objects in S3, and the storage of this config is not"
        )
    if object_mib is not None:
        storage = storage.model_copy(update={"merge_bytes_max": object_mib * MIB})
    job = Compaction(place, storage, SystemClock())
    planned = job.plan()
    if dry_run or not planned.rounds:
        _print_plan(planned, as_json=as_json)
        return
    if not take_over:
        _refuse_beside_a_node(settings, place)
    done: list[Merged] = []
    progress = Progress(planned.size_bytes)

    def on_merged(one: "Merged") -> None:
        done.append(one)
        progress.add(one.size_bytes)

    with shared.spark("compact", master=master) as session:
        job.run(session, settings.node.node_id, on_merged)
    progress.end()
    _print_summary(done, as_json=as_json)


def _refuse_beside_a_node(settings: Settings, place: "S3Place") -> None:
    """Raise ``RequestError`` when a node is seen that would stop."""
    from pipeline.compact.checks import other_sessions

    advice = "stop it, or let it merge by itself; --take-over goes on, and it will stop"
    with suppress(NodeUnreachable, Refused):
        client = client_of(settings)
        client.get("node")
        raise RequestError(f"a node runs, as {client.url} answers: {advice}")
    count = other_sessions(place)
    if count:
        raise RequestError(
            f"{count} other session(s) have the metadata database open, a node perhaps: {advice}"
        )


def _print_plan(planned: "Planned", *, as_json: bool) -> None:
    if as_json:
        print_json(planned._asdict())
    elif planned.rounds:
        say(
            f"{planned.objects:,} objects, {mib(planned.size_bytes)}, can be merged in "
            f"{planned.rounds:,} round(s), and what comes of it perhaps again"
        )
    else:
        say("nothing to merge")


def _print_summary(done: "list[Merged]", *, as_json: bool) -> None:
    damages = [one.damage for one in done if one.damage]
    needed = sum(len(one.left) for one in done if not one.damage)
    found = {
        "objects": sum(one.objects for one in done),
        "made": sum(one.made for one in done),
        "bytes": sum(one.size_bytes for one in done),
        "rounds": sum(one.made > 0 for one in done),
        "needed": needed,
        "damaged": damages,
    }
    if as_json:
        print_json(found)
        return
    say(
        f"merged {found['objects']:,} objects, {mib(sum(one.size_bytes for one in done))}, into "
        f"{found['made']:,}, in {found['rounds']:,} round(s); the node deletes the old ones"
    )
    if needed:
        say(
            f"{needed:,} object(s) stay: they have what idempotent producers wrote since the node "
            "last noted their state, which its next start reads"
        )
    for damage in damages:
        say(f"left as it is: {damage}")
