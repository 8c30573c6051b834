"""``headgate rules``: access rules, in force for all connections when a command ends."""

from enum import StrEnum
from typing import Annotated

import typer

from gateway.auth.ports import EVERYBODY, PatternKind
from gateway.auth.resource_types import ResourceTypes
from gateway.auth.rule_words import operation_words
from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import confirm, of_node
from gateway.cli.output import print_rows, say
from gateway.cli.synonyms import command_group

rules_app = command_group("Access rules of a running node.")


class Effect(StrEnum):
    """Effect of a matching rule."""

    ALLOW = "allow"
    DENY = "deny"


Does = Annotated[Effect, typer.Argument(help="Effect of a match; deny wins.")]
What = Annotated[
    str,
    typer.Argument(
        metavar="OPERATION",
        help="publish, subscribe or all for mqtt_topic; read, write, ... or all for others.",
    ),
]
Resource = Annotated[
    str,
    typer.Argument(
        help="Type of the resource: topic, group, cluster, transactional_id, exchange, "
        "mqtt_topic, or one of a plug-in."
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        help="Its name; a filter for mqtt_topic, with %c and %u for the client's own names. "
        "Without a name, any of the others is meant."
    ),
]
User = Annotated[
    str, typer.Option(help="For this user only; ANONYMOUS: clients without a name.")
]
ClientId = Annotated[
    str, typer.Option("--client", help="For this MQTT client identifier only.")
]
Protocol = Annotated[str, typer.Option(help="For clients of this adapter only.")]
Host = Annotated[str, typer.Option(help="For clients from this address only.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="For all names with this prefix.")]
Pattern = Annotated[
    str,
    typer.Option("--pattern", help="Kind of pattern, for types of plug-ins that have more."),
]
Eq = Annotated[
    bool,
    typer.Option(
        "--eq",
        help="For the filter as it is written. Denied to subscribe, a topic's messages are left "
        "out of wider subscriptions, which are granted.",
    ),
]


@rules_app.command()
@of_node
def add(  # noqa: PLR0913 - one argument per option
    client: AdminClient,
    effect: Does,
    operation: What,
    resource: Resource,
    name: Name = "",
    *,
    user: User = EVERYBODY,
    client_id: ClientId = EVERYBODY,
    protocol: Protocol = EVERYBODY,
    host: Host = EVERYBODY,
    is_prefix: Prefix = False,
    is_eq: Eq = False,
    pattern: Pattern = "",
) -> None:
    """Add a rule. But for mqtt_topic, it closes what it names to those it does not allow."""
    pattern = _pattern(pattern, is_prefix=is_prefix, is_eq=is_eq)
    rule = _rule(effect, operation, resource, name, user, client_id, pattern)
    client.send("POST", "rules", body={**rule, "protocol": protocol, "host": host})
    say("the rule holds")


@rules_app.command("ls")
@of_node
def list_rules(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List the stored rules and those of the config file."""
    found = client.get("rules")["rules"]
    columns = ["effect", "operation", "resource", "pattern", "name"]
    columns += ["principal", "client", "protocol", "host", "source"]
    print_rows(found, columns, as_json=as_json, if_empty="no rules")


@rules_app.command("rm")
@of_node
def remove(  # noqa: PLR0913 - one argument per option
    client: AdminClient,
    effect: Does,
    operation: What,
    resource: Resource,
    name: Name = "",
    *,
    user: User = EVERYBODY,
    client_id: ClientId = EVERYBODY,
    protocol: Protocol = EVERYBODY,
    host: Host = EVERYBODY,
    is_prefix: Prefix = False,
    is_eq: Eq = False,
    pattern: Pattern = "",
    yes: options.Yes = False,
) -> None:
    """Remove the rule with exactly these fields."""
    pattern = _pattern(pattern, is_prefix=is_prefix, is_eq=is_eq)
    rule = _rule(effect, operation, resource, name, user, client_id, pattern)
    said = f"{effect.value} {operation} {resource} {name}".rstrip()
    confirm(lambda: f"Remove the rule {said}?", yes=yes)
    client.send("DELETE", "rules", query={**rule, "protocol": protocol, "host": host})
    say("removed")


def _pattern(given: str, *, is_prefix: bool, is_eq: bool) -> str:
    """Return the pattern's kind; empty: the node has one for the type of resource."""
    if is_prefix:
        return PatternKind.PREFIX.name
    return "eq" if is_eq else given


def _check_operation(operation: str, resource: str) -> None:
    """Refuse a word that no type has; those of plug-ins are known to the node alone."""
    types = ResourceTypes()
    known = operation_words(types)
    if types.find(resource) is not None and operation not in known:
        msg = f"{operation!r} is none of {', '.join(known)}"
        raise typer.BadParameter(msg)


def _rule(  # noqa: PLR0913, PLR0917 - all that commands ask for
    effect: Effect,
    operation: str,
    resource: str,
    name: str,
    user: str,
    client_id: str,
    pattern: str,
) -> dict[str, str]:
    _check_operation(operation, resource)
    return {
        "effect": effect.value,
        "operation": operation,
        "resource": resource,
        "pattern": pattern,
        "name": name,
        "principal": user,
        "client": client_id,
    }
