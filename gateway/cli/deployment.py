"""``headgate export``, ``import`` and ``apply``: a node's topics, queues and users as a file."""

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient, Refused
from gateway.cli.node_commands import confirm, in_namespace
from gateway.cli.output import note, print_json, print_rows, say
from gateway.config.toml_text import toml_lines

_TABLES: Final = (
    "topics",
    "queues",
    "exchanges",
    "bindings",
    "users",
    "auth",
    "quotas",
    "delete",
)
_OF_CONFIG: Final = frozenset({"declared"})
_SECRETS: Final = ("password_file", "keys", "scram")
_HEADER: Final = "# Made by `headgate export`; `headgate import FILE` makes it again.\n"

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A .toml or .json file; a config file will do.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")
]


@in_namespace
def export(
    client: AdminClient,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="File to write; else standard output.")
    ] = None,
    *,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="With password verifiers and secrets of keys.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON instead of TOML.")
    ] = False,
) -> None:
    """Write topics, queues, exchanges, users and rules as a file, without messages."""
    query = {"secrets": "true"} if secrets else {}
    document = client.get("deployment", query=query)["document"]
    if as_json:
        text = json.dumps(document, indent=2, ensure_ascii=True) + "\n"
    else:
        text = _HEADER + "\n".join(toml_lines(_without_null(document), {})).rstrip() + "\n"
    if file is None:
        sys.stdout.write(text)
        return
    _write_private(file, text)
    count = sum(len(value) for value in document.values() if isinstance(value, list))
    note(f"wrote {count:,} entries to {file}" + (", with secrets" if secrets else ""))


@in_namespace
def import_document(
    client: AdminClient, file: File, *, dry_run: DryRun = False, as_json: options.AsJson = False
) -> None:
    """Make what a file has and the node has not; what is there stays as it is."""
    _apply(client, read_document(file), "create", dry_run=dry_run, as_json=as_json)


@in_namespace
def apply(
    client: AdminClient,
    file: File,
    *,
    dry_run: DryRun = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Make the node as a file says; only what its table [delete] names is deleted."""
    document = read_document(file)
    if any(document.get("delete", {}).values()) and not dry_run:
        confirm(lambda: _question(client, document), yes=yes)
    _apply(client, document, "enforce", dry_run=dry_run, as_json=as_json)


def read_document(file: Path) -> dict[str, Any]:
    """Return the tables of a file that a node can be made of. Error: ``Refused``."""
    try:
        text = file.read_text("utf-8")
        found = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}") from error
    except ValueError as error:  # both parsers', and UnicodeDecodeError
        raise Refused(f"{file}: {error}") from error
    if not isinstance(found, dict):
        raise Refused(f"{file}: is not a table")
    document = {key: value for key, value in found.items() if key in _TABLES}
    for key in ("topics", "queues", "exchanges"):
        if isinstance(document.get(key), list):
            document[key] = [_entry(one) for one in document[key]]
    if isinstance(document.get("auth"), dict):
        document["auth"] = {"rules": document["auth"].get("rules", [])}
    return _without_declared_users(document)


def _entry(one: object) -> object:
    if not isinstance(one, dict):
        return one
    return {key: value for key, value in one.items() if key not in _OF_CONFIG}


def _without_declared_users(document: dict[str, Any]) -> dict[str, Any]:
    """Leave out the users of a config file whose secrets are in files: the node reads those."""
    users = document.get("users")
    if isinstance(users, list):
        kept = [one for one in users if "password_file" not in one]
        if len(kept) < len(users):
            note(f"{len(users) - len(kept)} user(s) with a password_file: the node reads them")
        document["users"] = kept
    return document


def _apply(
    client: AdminClient, document: Mapping[str, Any], mode: str, *, dry_run: bool, as_json: bool
) -> None:
    body = {"document": document, "mode": mode, "dry_run": dry_run}
    changes = client.send("POST", "deployment", body=body)["changes"]
    failed = [one for one in changes if one["error"] or one["action"] == "conflict"]
    if as_json:
        print_json(changes)
    else:
        _print_changes(changes, dry_run=dry_run)
    if failed:
        raise Refused(f"{len(failed)} of {len(changes)} change(s) cannot be made, or failed")


def _print_changes(changes: list[dict[str, Any]], *, dry_run: bool) -> None:
    if not changes:
        say("nothing to change")
        return
    columns = ["action", "kind", "name", "details"]
    if any(one["error"] for one in changes):
        columns.append("error")
    print_rows(changes, columns, as_json=False)
    if dry_run:
        note("nothing has changed: leave out --dry-run to do it")


def _question(client: AdminClient, document: Mapping[str, Any]) -> str:
    body = {"document": {"delete": document["delete"]}, "dry_run": True}
    planned = client.send("POST", "deployment", body=body)["changes"]
    names = (
        ", ".join(f"{one['kind']} {one['name']}" for one in planned) or "nothing that is there"
    )
    return f"Delete {names}, with all that is in it?"


def _without_null(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a document for TOML, which has no null. Error: ``Refused``."""
    if isinstance(value, dict):
        return {key: _without_null(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_null(part) for part in value]
    if value is None:
        raise Refused("an argument is void, which TOML has not: --json writes it")
    return value


def _write_private(file: Path, text: str) -> None:
    """Write a file that its owner alone may read: it may hold secrets."""
    import os

    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}") from error
