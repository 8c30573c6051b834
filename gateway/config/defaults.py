"""Default values of a node's settings, to tell what was set."""

from typing import Any

from gateway.config.base import FrozenConfig
from gateway.config.loader import load_settings
from gateway.config.settings import Settings, StorageConfig
from gateway.config.text import as_tables
from gateway.config.toml_text import format_key, format_value


def default_tables(settings: Settings) -> dict[str, Any]:
    """Return the tables of the same adapters and storage with only the required keys set."""
    storage = {"adapter": settings.storage.adapter, **_required(settings.storage.options)}
    assignments = [f"storage={format_value(storage)}"]
    for name, adapter in settings.adapters.items():
        assignments.append(f"adapters.{format_key(name)}={format_value(_required(adapter))}")
    tables = as_tables(load_settings(assignments=assignments))
    tables["storage"]["adapter"] = StorageConfig().adapter
    return tables


def _required(config: FrozenConfig) -> dict[str, Any]:
    """Return the keys without a default, with their values."""
    fields = type(config).model_fields.items()
    return config.model_dump(mode="json", include={k for k, v in fields if v.is_required()})
