"""``headgate pipeline dlq``: count, show and replay dead letters."""

import json
import secrets
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.cli import options
from gateway.cli import pipeline_options as shared
from gateway.cli import pipeline_resend as resend
from gateway.cli.output import print_json, print_rows, say
from gateway.cli.progress import Progress
from gateway.cli.settings import settings_of
from gateway.cli.synonyms import command_group
from gateway.errors import GatewayError

if TYPE_CHECKING:
    from pipeline.resend.dead_letters import Group, Letter, Replayed

_CHARS_SHOWN: Final = 200
_MS_PER_S: Final = 1_000

pipeline_dlq_app = command_group("Dead letters: by reason, in full, and sent back to work.")

Topics = Annotated[
    list[str], typer.Option("--topic", help="A dead-letter topic; may be given again.")
]
Picks = Annotated[
    list[str] | None,
    typer.Option("--pick", help="A group, as `reasons` names it; may be given again."),
]
Sources = Annotated[
    list[str] | None, typer.Option("--source", help="Only letters from this topic.")
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", help="Only letters of this queue group.")
]
Since = Annotated[
    str, typer.Option(help="Only letters dead since this time: ISO 8601 or unix ms.")
]
Until = Annotated[str, typer.Option(help="Only letters dead before this time.")]


class SomeRefused(GatewayError):
    """Replay of which the endpoint refused some letters."""


@pipeline_dlq_app.command()
def reasons(  # noqa: PLR0913 - the options of the command
    *,
    topic: Topics,
    source: Sources = None,
    group: Groups = None,
    since: Since = "",
    until: Until = "",
    count: Annotated[
        int,
        typer.Option(
            "--count", "-n", min=1, max=10_000, help="Largest groups to show at most."
        ),
    ] = 50,
    master: shared.Master = shared.LOCAL,
    dry_run: shared.DryRun = False,
    print_submit: shared.PrintSubmit = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Count dead letters by reason.

    Numbers, ids and quoted parts of a reason do not count. A group has a short name for `show`
    and `replay`.
    """
    if print_submit:
        shared.print_submit_line()
        return
    letters = _Letters(topic, None, source, group, since, until, config, assignments)
    if dry_run:
        letters.say_plan("grouped", as_json=as_json)
        return
    from pipeline.resend.dead_letters import group_letters

    with shared.spark("dlq-reasons", master=master) as session:
        found = group_letters(letters.read(session, with_bodies=False), groups_max=count)
    if as_json:
        print_json([one._asdict() for one in found])
    elif not found:
        say("there are no dead letters")
    else:
        _print_groups(found)


@pipeline_dlq_app.command()
def show(  # noqa: PLR0913 - the options of the command
    *,
    topic: Topics,
    pick: Picks = None,
    source: Sources = None,
    group: Groups = None,
    since: Since = "",
    until: Until = "",
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=10_000, help="Letters to show at most.")
    ] = 10,
    whole: Annotated[bool, typer.Option(help="Print values in full.")] = False,
    master: shared.Master = shared.LOCAL,
    dry_run: shared.DryRun = False,
    print_submit: shared.PrintSubmit = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Show dead letters: key, value and headers, as text or in hex."""
    if print_submit:
        shared.print_submit_line()
        return
    letters = _Letters(topic, pick, source, group, since, until, config, assignments)
    if dry_run:
        letters.say_plan("looked through", as_json=as_json)
        return
    from pipeline.resend.dead_letters import first_letters

    with shared.spark("dlq-show", master=master) as session:
        found = first_letters(letters.read(session, with_bodies=True), count)
    rows = [_as_row(one, chars_max=sys.maxsize if whole else _CHARS_SHOWN) for one in found]
    if as_json:
        print_json(rows)
    elif not rows:
        say("there are no such dead letters")
    else:
        for row in rows:
            _print_letter(row)


@pipeline_dlq_app.command()
def replay(  # noqa: PLR0913 - the options of the command
    *,
    topic: Topics,
    pick: Picks = None,
    source: Sources = None,
    group: Groups = None,
    since: Since = "",
    until: Until = "",
    to: Annotated[
        str, typer.Option(help="Target topic, instead of each letter's source.")
    ] = "",
    job_id: resend.JobId = "",
    rate: resend.Rate = 0,
    bootstrap: resend.Bootstrap = "",
    user: resend.User = "",
    ca_file: resend.CaFile = None,
    yes: options.Yes = False,
    master: shared.Master = shared.LOCAL,
    dry_run: shared.DryRun = False,
    print_submit: shared.PrintSubmit = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Send dead letters to their source again; the dead letters stay.

    Each bears a header `dlq.replayed` with the id of the run and its position. A run that was
    killed goes on where it was when it is given the same --id, on any machine.
    """
    if print_submit:
        shared.print_submit_line()
        return
    letters = _Letters(topic, pick, source, group, since, until, config, assignments)
    from pipeline.resend.dead_letters import Replay, count_by_source, ordered
    from pipeline.resend.endpoint import endpoint_of
    from pipeline.resend.job_state import check_id

    chosen_id = check_id(job_id or secrets.token_hex(4))
    endpoint = endpoint_of(letters.settings, bootstrap=bootstrap, user=user, ca_file=ca_file)
    # What is not acknowledged yet may go with a loss of power, and others get its offsets.
    letters.end_at(endpoint.ends(topic))
    job = Replay(
        endpoint,
        job_id=chosen_id,
        is_new=not job_id,
        topics=topic,
        to=to,
        rate_per_s=rate,
    )
    with shared.spark("dlq-replay", master=master) as session:
        rows = letters.read(session, with_bodies=True)
        planned = count_by_source(rows)
        total = sum(planned.values())
        if dry_run or not total:
            _print_replay_plan(planned, to, as_json=as_json)
            return
        if not yes:
            where = to or "where they came from"
            typer.confirm(f"Send {total:,} dead letter(s) to {where}?", abort=True, err=True)
        sys.stderr.write(f"replay {chosen_id}: --id {chosen_id} goes on where it was\n")
        progress = Progress(total, unit="letters")
        done = job.run(ordered(rows), progress.add)
        progress.end()
    _print_replayed(chosen_id, done, as_json=as_json)


class _Letters:
    """Selection of dead letters by the options."""

    def __init__(  # noqa: PLR0913, PLR0917 - the options that the commands share
        self,
        topics: list[str],
        picks: list[str] | None,
        sources: list[str] | None,
        groups: list[str] | None,
        since: str,
        until: str,
        config: options.Config,
        assignments: options.Assignments,
    ) -> None:
        from pipeline.spark_session import check_installed

        check_installed("confluent_kafka")
        from pipeline.log.access import source_options, views
        from pipeline.log.options import parse_options
        from pipeline.log.splits import wanted
        from pipeline.resend.dead_letters import LetterChoice

        self.settings = settings_of(config, assignments)
        # The last letters of a quiet log are not known to be synced, and are wanted all the same.
        self._source = {**source_options(self.settings), "includeUnsynced": "true"}
        if since:
            self._source["startingTime"] = since
        if until:
            self._source["endingTime"] = until
        self._topics = topics
        self._choice = LetterChoice(picks or (), sources or (), groups or ())
        chosen = parse_options({**self._source, "topics": ",".join(topics)})
        # What is wrong is said before Spark starts.
        found = wanted(views(chosen), chosen)
        self.records = sum(view.end - view.start for view in found.values())

    def end_at(self, ends: dict[str, dict[str, int]]) -> None:
        """Leave out letters at or after these offsets, by topic and partition."""
        self._source["endingOffsets"] = json.dumps(ends)

    def read(self, session: Any, *, with_bodies: bool) -> Any:  # noqa: ANN401 - pyspark's
        """Return the rows of the letters."""
        from pipeline.resend.dead_letters import read_letters

        return read_letters(
            session, self._source, self._topics, self._choice, with_bodies=with_bodies
        )

    def say_plan(self, what: str, *, as_json: bool) -> None:
        """Print how many bytes there are to read."""
        if as_json:
            print_json({"records": self.records})
        else:
            say(f"{self.records:,} dead letter(s) are to be {what}")


def _print_groups(found: "list[Group]") -> None:
    rows = [
        {
            "pick": one.pick,
            "letters": one.letters,
            "reason": one.reason,
            "from": one.source_topic or None,
            "group": one.group or None,
            "protocol": one.protocol or None,
            "first": _time(one.first_unix_ms),
            "last": _time(one.last_unix_ms),
            "example": one.example,
        }
        for one in found
    ]
    print_rows(rows, list(rows[0]), as_json=False)
    total = sum(one.letters for one in found)
    say(f"\n{total:,} dead letter(s) in {len(found)} group(s)")


def _as_row(letter: "Letter", *, chars_max: int) -> dict[str, Any]:
    return {
        "position": str(letter.position),
        "time": _time(letter.unix_ms),
        "pick": letter.pick,
        "key": _shown(letter.key, chars_max),
        "value": _shown(letter.value, chars_max),
        "headers": [[name, _shown(value, chars_max)] for name, value in letter.headers],
    }


def _print_letter(row: dict[str, Any]) -> None:
    say(f"{row['position']}  {row['time']}  {row['pick']}")
    for name in ("key", "value"):
        say(f"  {name}: {'(none)' if row[name] is None else row[name]}")
    for name, value in row["headers"]:
        say(f"  {name} = {'(none)' if value is None else value}")


def _shown(value: bytes | None, chars_max: int) -> str | None:
    """Return text as it is and other bytes in hex, cut.

    >>> _shown(b"ab", 9), _shown(bytes([0, 255]), 9), _shown(b"abcdef", 4), _shown(None, 1)
    ('ab', 'hex 00ff', 'abcd... (6 bytes)', None)
    """
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or (value and not text):
        text = f"hex {value[: chars_max // 2 + 1].hex()}" if value else ""
    return text if len(text) <= chars_max else f"{text[:chars_max]}... ({len(value)} bytes)"


def _print_replay_plan(planned: dict[str, int], to: str, *, as_json: bool) -> None:
    targets = {to: sum(planned.values())} if to else planned
    if as_json:
        print_json({"letters": sum(planned.values()), "topics": targets})
        return
    if not planned:
        say("there are no such dead letters")
    for name, count in sorted(targets.items()):
        say(f"{count:,} dead letter(s) to {name or 'nowhere: they do not say where from'}")


def _print_replayed(job_id: str, done: "Replayed", *, as_json: bool) -> None:
    if as_json:
        print_json({"id": job_id, **done._asdict()})
    else:
        say(f"replay {job_id}: sent {done.sent:,} dead letter(s)")
        for name, count in sorted(done.topics.items()):
            say(f"  {count:,} to {name}")
        if done.sent_before:
            say(f"  {done.sent_before:,} had been sent by this id before")
        if done.homeless:
            say(f"  {done.homeless:,} stay: the topic they came from is unknown, or not there")
    if done.failed:
        raise SomeRefused(
            "\n".join([f"{done.failed} dead letter(s) were not taken, such as", *done.failures])
        )


def _time(unix_ms: int) -> str:
    """Return a time for people, in UTC.

    >>> _time(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    moment = datetime.fromtimestamp(unix_ms / _MS_PER_S, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
