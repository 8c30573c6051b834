"""``headgate check-config``: a node's effective settings, and what is unusual in them."""

import json
from typing import Annotated, Any

import typer

from gateway.cli import options
from gateway.cli.admin_client import settings_of
from gateway.cli.config_reference import reference
from gateway.cli.output import print_json, say
from gateway.config import Settings, StorageConfig
from gateway.config_advice import check_exposure, warnings
from gateway.config_checker import InvalidSettings
from gateway.config_loader import load_settings
from gateway.config_text import as_tables, format_key, toml_lines


def check_config(
    *,
    as_reference: Annotated[
        bool, typer.Option("--reference", help="Describe every key, in Markdown.")
    ] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Print the effective settings as TOML, marking what differs from the defaults."""
    if as_reference:
        say(reference())
        return
    settings = settings_of(config, assignments)
    if as_json:
        print_json(as_tables(settings))
        return
    for line in toml_lines(as_tables(settings), _defaults(settings)):
        say(line)
    for warning in warnings(settings):
        say(f"# warning: {warning}")
    try:
        check_exposure(settings, users_configured=False)
    except InvalidSettings as error:
        say(f"# warning: while there are no users, nothing starts: {error}")


def _defaults(settings: Settings) -> dict[str, Any]:
    """Return what the same adapters and storage have when nothing is set."""
    assignments = [f"storage.adapter={json.dumps(settings.storage.adapter)}"]
    assignments += [f"adapters.{format_key(name)}={{}}" for name in settings.adapters]
    tables = as_tables(load_settings(assignments=assignments))
    tables["storage"]["adapter"] = StorageConfig().adapter
    return tables
