"""Config keys that are limits, with their defaults, for the check of docs/limits.md."""

from collections.abc import Iterator
from typing import Final

from gateway.cli.config_reference import default_text, keys_of, sections
from gateway.config.base import FrozenConfig, ListenerConfig

LISTENER: Final = "listener"
"""Placeholder for a listener's path in docs/limits.md, as there are several listeners."""


def limit_keys() -> dict[str, set[str]]:
    """Return the defaults of all keys that are a maximum, a budget or a reserve, by path.

    A key that every listener has is there once, as ``listener.<key>``, with a default for each
    that differs; so is one of several storage adapters.
    """
    found: dict[str, set[str]] = {}
    for title, model in sections():
        for key in keys_of(model):
            if key.endswith(("_max", "_reserve")) or "budget" in key:
                path, default = _row_of(title, model, key)
                found.setdefault(path, set()).add(default)
    return found


def _row_of(title: str, model: type[FrozenConfig], key: str) -> tuple[str, str]:
    default = default_text(model.model_fields[key])
    if key in ListenerConfig.model_fields and issubclass(model, ListenerConfig):
        return f"{LISTENER}.{key}", default
    name = title.partition(" with ")[0]
    path = f"{name.strip('[]')}[]" if name.startswith("[[") else name.strip("[]")
    return f"{path}.{key}", default


def rows_of(page: str) -> Iterator[tuple[str, str]]:
    """Yield the key and the default of every row of a page's tables."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) > 1:
            yield cells[0].strip("`"), cells[1]
