"""Shared parts of commands for a running node: the client of their options, and changes."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, Concatenate, NamedTuple, ParamSpec

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.find_node import NodeOptions, find_client
from gateway.errors import GatewayError
from gateway.model import DEFAULT_NAMESPACE

_Own = ParamSpec("_Own")


class Change(NamedTuple):
    """New value of a setting; None restores the default."""

    name: str
    value: str | None


def of_node(command: Callable[Concatenate[AdminClient, _Own], None]) -> Callable[..., None]:
    """Decorate a command with its client and the options that name a node.

    Typer calls what this returns. Errors: ``InvalidSettings``, ``NodeUnreachable``.
    """
    return _given(_client, command)


def in_namespace(
    command: Callable[Concatenate[AdminClient, _Own], None],
) -> Callable[..., None]:
    """Decorate as ``of_node``, and with the option ``--namespace``."""
    return _given(_client_in, command)


class Unanswered(GatewayError):
    """Question without a terminal to answer it."""


def confirm(question: Callable[[], str], *, yes: bool) -> None:
    """Return only if the user agrees, now or by ``--yes``.

    ``question`` looks at what would be lost, and raises where there is no such thing; with
    ``--yes`` nothing is asked, and it is not called. Error: ``Unanswered``.
    """
    if yes:
        return
    text = question()
    try:
        agrees = typer.confirm(text)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        raise Unanswered("nobody answered; --yes (-y) goes on without asking") from None
    if not agrees:
        raise typer.Abort


def parse_change(text: str) -> Change:
    """Return the name and value of ``NAME=VALUE``; an empty value is None.

    >>> parse_change("retention.ms=1000"), parse_change("retention.ms=")
    (Change(name='retention.ms', value='1000'), Change(name='retention.ms', value=None))
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        msg = f"{text!r} is not NAME=VALUE"
        raise typer.BadParameter(msg)
    return Change(name, value or None)


def _client(
    *,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> AdminClient:
    return find_client(NodeOptions(url, token_file, config, assignments))


def _client_in(
    *,
    namespace: options.Namespace = DEFAULT_NAMESPACE,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> AdminClient:
    given = NodeOptions(url, token_file, config, assignments)
    return find_client(given, namespace=namespace)


def _given(
    make_client: Callable[..., AdminClient], command: Callable[..., None]
) -> Callable[..., None]:
    """Return the command with the options of ``make_client`` instead of its client."""
    shared = inspect.signature(make_client).parameters
    _, *own = inspect.signature(command).parameters.values()

    @functools.wraps(command)
    def run(**given: Any) -> None:  # noqa: ANN401 - what Typer has parsed
        client = make_client(**{name: given.pop(name) for name in shared})
        command(client, **given)

    # Typer reads the options from here.
    run.__signature__ = inspect.Signature([*own, *shared.values()])  # type: ignore[attr-defined]
    return run
