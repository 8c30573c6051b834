"""Settings of a command line, whole and checked, for commands that need more than an address."""

import os
from pathlib import Path

from gateway.cli.admin_client import AdminClient
from gateway.config.loader import load_settings
from gateway.config.settings import Settings


def settings_of(config: Path | None, assignments: list[str] | None) -> Settings:
    """Return the settings of the command line. Errors: ``InvalidSettings``."""
    return load_settings(file=config, assignments=assignments or (), environment=os.environ)


def client_of(settings: Settings) -> AdminClient:
    """Return a client of the node with these settings. Errors: ``NodeUnreachable``."""
    return AdminClient.local(settings.node.data_dir, settings.admin.bind)
