"""``headgate check-config``: a node's effective settings, and warnings."""

from typing import Annotated

import typer

from gateway.cli import options
from gateway.cli.admin_client import Refused
from gateway.cli.config_reference import reference
from gateway.cli.output import print_json, say
from gateway.cli.settings import settings_of
from gateway.config.advice import check_exposure, warnings
from gateway.config.base import InvalidSettings
from gateway.config.defaults import default_tables
from gateway.config.listeners import addresses_in_use, check_certificates
from gateway.config.settings import Settings
from gateway.config.text import as_tables
from gateway.config.toml_text import toml_lines
from gateway.contributions import Contributions
from gateway.errors import InvalidConfig
from gateway.exchanges.declared import check_declared
from gateway.registry import storage_class
from gateway.topics.configs import check_configs


def check_config(
    *,
    as_reference: Annotated[
        bool, typer.Option("--reference", help="Describe every key, in Markdown.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with status 1 where there are warnings.")
    ] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Print the effective settings as TOML, marking what differs from the defaults.

    Ends with status 2 where a node would not start with them, certificates included.
    """
    if as_reference:
        say(reference())
        return
    settings = settings_of(config, assignments)
    if as_json:
        print_json(as_tables(settings))
        _check_start(settings)
        return
    for line in toml_lines(as_tables(settings), default_tables(settings)):
        say(line)
    found = [*warnings(settings), *addresses_in_use(settings)]
    for warning in found:
        say(f"# warning: {warning}")
    try:
        required = settings.auth.required
        asks = bool(settings.users) if required is None else required
        check_exposure(settings, users_configured=asks)
    except InvalidSettings as error:
        say(f"# warning: while nobody must log in, nothing starts: {error}")
    _check_start(settings)
    if strict and found:
        raise Refused(f"{len(found)} warning(s), with --strict")


def _check_start(settings: Settings) -> None:
    """Check what a start checks after the settings. Errors: ``InvalidSettings``."""
    tables = {"topic_defaults.configs": settings.topic_defaults.configs}
    tables |= {
        f"topics[{number}].configs": topic.configs
        for number, topic in enumerate(settings.topics)
    }
    compacts = hasattr(storage_class(settings.storage.adapter), "rewrite")
    specs = Contributions.of(settings.adapters).specs
    for path, configs in tables.items():
        try:
            check_configs(configs, specs, can_compact=compacts)
        except InvalidConfig as error:
            raise InvalidSettings(f"{path}: {error}") from error
    check_certificates(settings)
    check_declared(settings.exchanges, settings.bindings)
