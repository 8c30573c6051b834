"""Definitions file of the config, imported at a start."""

import json
from pathlib import Path

from adapters.amqp.management.definitions_import import Importer
from adapters.amqp.node import AmqpNode
from gateway.config.base import InvalidSettings
from gateway.errors import GatewayError


async def import_file(node: AmqpNode, path: Path) -> None:
    """Import a file. Errors: ``InvalidSettings``, with what is wrong; ``StorageUnavailable``."""
    try:
        found = json.loads(_read(path))
    except OSError as error:
        raise InvalidSettings(f"adapters.amqp.definitions: {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidSettings(f"adapters.amqp.definitions: {path}: {error}") from error
    try:
        await Importer(node).run(found)
    except GatewayError as error:
        if error.retriable:
            raise
        raise InvalidSettings(f"adapters.amqp.definitions: {path}: {error}") from error


def _read(path: Path) -> str:
    """Return the text of the file; at a start nobody waits for the loop."""
    return path.read_text("utf-8-sig")
