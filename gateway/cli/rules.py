"""``headgate rules``: access rules, in force for all connections when a command ends."""

from enum import StrEnum
from typing import Annotated, Final

import typer

from gateway.auth.ports import EVERYBODY, Operation, PatternKind, ResourceType
from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import confirm, of_node
from gateway.cli.output import print_rows, say
from gateway.cli.synonyms import command_group

rules_app = command_group("Access rules of a running node.")

_OPERATIONS: Final = ("publish", "subscribe", *(one.value for one in Operation))


class Effect(StrEnum):
    """Effect of a matching rule."""

    ALLOW = "allow"
    DENY = "deny"


def _operation(text: str) -> str:
    if text not in _OPERATIONS:
        msg = f"{text!r} is none of {', '.join(_OPERATIONS)}"
        raise typer.BadParameter(msg)
    return text


Does = Annotated[Effect, typer.Argument(help="Effect of a match; deny wins.")]
What = Annotated[
    str,
    typer.Argument(
        parser=_operation,
        metavar="OPERATION",
        help="publish, subscribe or all for mqtt_topic; read, write, ... or all for others.",
    ),
]
Resource = Annotated[ResourceType, typer.Argument(help="Type of the resource.")]
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
) -> None:
    """Add a rule. But for mqtt_topic, it closes what it names to those it does not allow."""
    rule = _rule(
        effect, operation, resource, name, user, client_id, is_prefix=is_prefix, is_eq=is_eq
    )
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
    yes: options.Yes = False,
) -> None:
    """Remove the rule with exactly these fields."""
    rule = _rule(
        effect, operation, resource, name, user, client_id, is_prefix=is_prefix, is_eq=is_eq
    )
    said = f"{effect.value} {operation} {resource.value} {name}".rstrip()
    confirm(lambda: f"Remove the rule {said}?", yes=yes)
    client.send("DELETE", "rules", query={**rule, "protocol": protocol, "host": host})
    say("removed")


def _rule(  # noqa: PLR0913, PLR0917 - all that commands ask for
    effect: Effect,
    operation: str,
    resource: ResourceType,
    name: str,
    user: str,
    client_id: str,
    *,
    is_prefix: bool,
    is_eq: bool,
) -> dict[str, str]:
    if is_prefix:
        pattern = PatternKind.PREFIX
    elif is_eq:
        pattern = PatternKind.EQ
    elif resource is ResourceType.MQTT_TOPIC:
        pattern = PatternKind.FILTER
    else:
        pattern = PatternKind.LITERAL if name else PatternKind.ANY
    return {
        "effect": effect.value,
        "operation": operation,
        "resource": resource.value,
        "pattern": pattern.value,
        "name": name,
        "principal": user,
        "client": client_id,
    }
