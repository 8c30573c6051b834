"""The node that a command is about: by its URL, or by its data directory on this machine."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway.cli.admin_client import AdminClient
from gateway.config.sources import merged, read_sources

URL_VARIABLE: Final = "HEADGATE_URL"
TOKEN_FILE_VARIABLE: Final = "HEADGATE_TOKEN_FILE"  # noqa: S105 - a variable's name
_DATA_DIR: Final = "data"  # the settings' defaults: a test compares them
_BIND: Final = "127.0.0.1:9644"


class NodeOptions(NamedTuple):
    """Options of a command that say which node it is about; a URL wins over the config."""

    url: str | None = None
    token_file: Path | None = None
    config: Path | None = None
    assignments: list[str] | None = None


def find_client(given: NodeOptions, *, namespace: str | None = None) -> AdminClient:
    """Return a client of the node. Errors: ``NodeUnreachable``, ``InvalidSettings``."""
    url = given.url or os.environ.get(URL_VARIABLE)
    token_file = given.token_file or _path(os.environ.get(TOKEN_FILE_VARIABLE))
    if url:
        return AdminClient.remote(url, token_file, namespace=namespace)
    table = merged(
        read_sources(
            file=given.config, assignments=given.assignments or (), environment=os.environ
        )
    )
    data_dir, bind = _text(table, "node", "data_dir"), _text(table, "admin", "bind")
    return AdminClient.local(Path(data_dir or _DATA_DIR), bind or _BIND, namespace=namespace)


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _text(table: Mapping[str, Any], section: str, key: str) -> str | None:
    """Return a key's text; None where it is not set, or is what the node would refuse."""
    found = table.get(section)
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, str) else None
