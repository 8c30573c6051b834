"""``headgate exchanges`` and ``headgate bindings``: routes of messages in a running node."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import confirm, in_namespace
from gateway.cli.output import print_json, print_rows, say
from gateway.cli.synonyms import command_group

exchanges_app = command_group("Exchanges of a running node.")
bindings_app = command_group("Bindings of exchanges of a running node.")

Name = Annotated[str, typer.Argument(help="The exchange; amq.default is the default one.")]
Type = Annotated[
    str,
    typer.Option(
        "--type",
        "-t",
        help="direct, fanout, topic, headers, x-consistent-hash, x-modulus-hash, x-random, "
        "x-local-random or x-recent-history.",
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--argument",
        "-a",
        metavar="NAME=VALUE",
        help="An argument; a value that is JSON is taken as such. May be repeated.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        metavar="NAME=VALUE",
        help="A header; a value that is JSON is taken as such. May be repeated.",
    ),
]
Key = Annotated[str, typer.Option("--key", "-k", help="Routing key.")]
Source = Annotated[str, typer.Argument(help="The exchange that messages are published to.")]
Destination = Annotated[str, typer.Argument(help="The topic that gets them.")]
ToExchange = Annotated[
    bool, typer.Option("--to-exchange", help="The destination is an exchange, not a topic.")
]


@exchanges_app.command("ls")
@in_namespace
def list_exchanges(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List exchanges with their types and the number of their bindings."""
    found = client.get("exchanges")["exchanges"]
    columns = ["name", "type", "bindings", "arguments", "auto_delete", "internal"]
    print_rows(found, columns, as_json=as_json)


@exchanges_app.command()
@in_namespace
def create(  # noqa: PLR0913 - one argument per option
    client: AdminClient,
    name: Name,
    *,
    kind: Type = "direct",
    alternate: Annotated[
        str, typer.Option(help="Exchange for messages that no binding matches.")
    ] = "",
    arguments: Arguments = None,
    auto_delete: Annotated[
        bool, typer.Option("--auto-delete", help="Delete it with the last binding from it.")
    ] = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="Take messages from other exchanges only.")
    ] = False,
    transient: Annotated[
        bool, typer.Option("--transient", help="Delete it when the node stops.")
    ] = False,
) -> None:
    """Create an exchange; an equal one that is there is no error."""
    found = parse_pairs(arguments)
    if alternate:
        found["alternate-exchange"] = alternate
    body = {
        "name": name,
        "type": kind,
        "arguments": found,
        "auto_delete": auto_delete,
        "internal": internal,
        "durable": not transient,
    }
    client.send("POST", "exchanges", body=body)
    say(f"exchange {name} of type {kind} is there")


@exchanges_app.command()
@in_namespace
def delete(client: AdminClient, name: Name, *, yes: options.Yes = False) -> None:
    """Delete an exchange and its bindings."""
    confirm(lambda: f"Delete exchange {name} {_bound(client, name)}?", yes=yes)
    client.send("DELETE", "exchanges", name)
    say(f"deleted {name}")


@exchanges_app.command()
@in_namespace
def route(
    client: AdminClient,
    name: Name,
    *,
    key: Key = "",
    headers: Headers = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show each exchange on the way, and why.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the topics that a message would go to, without publishing it."""
    body = {"routing_key": key, "headers": parse_pairs(headers), "explain": explain}
    found = client.send("POST", "exchanges", name, "route", body=body)
    if as_json:
        print_json(found if explain else found["topics"])
        return
    for step in found.get("steps", ()):
        _print_step(step)
    say("\n".join(found["topics"]) if found["topics"] else "nowhere: no binding matches")


def _print_step(step: Mapping[str, Any]) -> None:
    """Print an exchange on the way of a message, with the reasons of its bindings."""
    kind = f", {step['type']}" if step["type"] else ""
    say(f"{step['exchange']}{kind}: {step['outcome']}")
    rows = [{**one, "matches": "yes" if one["matches"] else "no"} for one in step["bindings"]]
    if rows:
        columns = ["matches", "topic", "exchange", "routing_key", "arguments", "reason"]
        print_rows(rows, columns, as_json=False)
    if step["bindings_left_out"]:
        say(f"and {step['bindings_left_out']} bindings more")


@bindings_app.command("ls")
@in_namespace
def list_bindings(
    client: AdminClient,
    *,
    source: Annotated[str, typer.Option(help="Bindings of this exchange only.")] = "",
    as_json: options.AsJson = False,
) -> None:
    """List bindings."""
    query = {"source": source} if source else {}
    found = client.get("bindings", query=query)["bindings"]
    columns = ["source", "topic", "exchange", "routing_key", "arguments"]
    none = "no bindings; make one: headgate bindings create EXCHANGE TOPIC --key KEY"
    print_rows(found, columns, as_json=as_json, if_empty=none)


@bindings_app.command("create")
@in_namespace
def bind(
    client: AdminClient,
    source: Source,
    destination: Destination,
    *,
    key: Key = "",
    arguments: Arguments = None,
    to_exchange: ToExchange = False,
) -> None:
    """Bind a topic, or another exchange, to an exchange."""
    body = _binding(source, destination, key, arguments, to_exchange=to_exchange)
    client.send("POST", "bindings", body=body)
    say(f"{source} leads to {destination}")


@bindings_app.command("delete")
@in_namespace
def unbind(
    client: AdminClient,
    source: Source,
    destination: Destination,
    *,
    key: Key = "",
    arguments: Arguments = None,
    to_exchange: ToExchange = False,
) -> None:
    """Remove the binding with exactly these fields."""
    query = _binding(source, destination, key, arguments, to_exchange=to_exchange)
    query["arguments"] = json.dumps(query["arguments"])
    client.send("DELETE", "bindings", query=query)
    say("removed")


def parse_pairs(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Return arguments or headers of ``NAME=VALUE``.

    >>> parse_pairs(["x-match=any", "n=5", "b=true", "t=05"])
    {'x-match': 'any', 'n': 5, 'b': True, 't': '05'}
    """
    found = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not name or not equals:
            msg = f"{pair!r} is not NAME=VALUE"
            raise typer.BadParameter(msg)
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _binding(
    source: str,
    destination: str,
    key: str,
    arguments: Sequence[str] | None,
    *,
    to_exchange: bool,
) -> dict[str, Any]:
    return {
        "source": source,
        "exchange" if to_exchange else "topic": destination,
        "routing_key": key,
        "arguments": parse_pairs(arguments),
    }


def _bound(client: AdminClient, name: str) -> str:
    """Return the number of bindings from an exchange. Error: ``Refused`` where there is none."""
    return f"with {client.get('exchanges', name)['bindings']} bindings"
