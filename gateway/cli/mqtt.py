"""``headgate mqtt``: sessions, subscriptions and retained messages of MQTT."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import confirm, of_node
from gateway.cli.output import note, print_rows, say
from gateway.cli.record_lines import shown
from gateway.cli.synonyms import command_group

_PAGE: Final = 500

mqtt_app = command_group("MQTT sessions of a running node.")

Contains = Annotated[str, typer.Option(help="Only those whose name contains this text.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows to print at most.")]


@mqtt_app.command()
@of_node
def sessions(
    client: AdminClient,
    *,
    contains: Contains = "",
    limit: Limit = 100,
    as_json: options.AsJson = False,
) -> None:
    """List sessions, connected or not."""
    found = _Rows(client, "sessions", {"contains": contains}, limit)
    columns = ["client_id", "user", "host", "is_connected", "version", "subscriptions"]
    columns += ["in_flight", "partitions_behind"]
    empty = "no sessions; a client makes one when it connects"
    print_rows(found.rows, columns, as_json=as_json, if_empty=empty)
    found.note_rest()


@mqtt_app.command()
@of_node
def subs(
    client: AdminClient,
    *,
    contains: Contains = "",
    limit: Limit = 100,
    as_json: options.AsJson = False,
) -> None:
    """List subscriptions."""
    found = _Rows(client, "subscriptions", {"contains": contains}, limit)
    columns = ["client_id", "filter", "group", "qos", "no_local"]
    print_rows(found.rows, columns, as_json=as_json, if_empty="no subscriptions")
    found.note_rest()


@mqtt_app.command()
@of_node
def retained(
    client: AdminClient,
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="A filter, a/+/#.")
    ] = "#",
    *,
    limit: Limit = 100,
    as_json: options.AsJson = False,
) -> None:
    """List retained messages whose topics match a filter."""
    query = {"filter": topic_filter}
    found: list[dict[str, Any]] = []
    while len(found) < limit:
        query["limit"] = str(min(_PAGE, limit - len(found)))
        page = _view(client, "retained", query)
        found += page["rows"]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    rows = found if as_json else [{**one, "value": shown(one, "value")} for one in found]
    empty = f"no retained message matches {topic_filter}"
    print_rows(rows, ["topic", "qos", "publisher", "value"], as_json=as_json, if_empty=empty)


@mqtt_app.command()
@of_node
def who(
    client: AdminClient,
    topic: Annotated[str, typer.Argument(help="A topic name, without wildcards.")],
    *,
    limit: Limit = 100,
    as_json: options.AsJson = False,
) -> None:
    """List the receivers of a topic's next message, and the topic of the log that keeps it."""
    found = _view(client, "receivers", {"topic": topic, "limit": str(min(limit, _PAGE))})
    rows = [{"receiver": one.get("client_id") or one["group"], **one} for one in found["rows"]]
    empty = "no subscription matches"
    columns = ["receiver", "filter", "qos", "is_connected"]
    print_rows(rows, columns, as_json=as_json, if_empty=empty)
    if not as_json:
        note(f"kept in topic {found['log_topic']} of the log")


@mqtt_app.command()
@of_node
def disconnect(
    client: AdminClient,
    client_id: Annotated[str, typer.Argument(help="The client's identifier.")],
    *,
    yes: options.Yes = False,
) -> None:
    """End a client's connection; its session stays, and it may connect again."""
    confirm(lambda: f"End the connection of MQTT client {client_id}?", yes=yes)
    body = {"values": {"client_id": client_id}}
    client.send("POST", "adapters", "mqtt", "disconnect", body=body)
    say(f"disconnected {client_id}")


class _Rows:
    """Rows of a view, page by page up to a limit, and their number on the node."""

    def __init__(
        self, client: AdminClient, view: str, query: Mapping[str, str], limit: int
    ) -> None:
        self.total = 0
        self.rows = list(self._pages(client, view, query, limit))

    def _pages(
        self, client: AdminClient, view: str, query: Mapping[str, str], limit: int
    ) -> Iterator[dict[str, Any]]:
        for offset in range(0, limit, _PAGE):
            part = {"limit": str(min(_PAGE, limit - offset)), "offset": str(offset)}
            page = _view(client, view, {**query, **part})
            self.total = page["total"]
            yield from page["rows"]
            if offset + _PAGE >= page["total"]:
                return

    def note_rest(self) -> None:
        """Say how many rows there are beside those that were printed."""
        if self.total > len(self.rows):
            note(f"{len(self.rows):,} of {self.total:,}; --limit shows more")


def _view(client: AdminClient, view: str, query: Mapping[str, str]) -> dict[str, Any]:
    return client.get("adapters", "mqtt", view, query=query)
