"""``Settings`` from TOML files, the environment and ``--set``; later ones win.

``HEADGATE_STORAGE__FLUSH=never`` and ``--set storage.flush=never`` mean ``flush = "never"`` in
``[storage]``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway import registry
from gateway.config.checker import Checker
from gateway.config.listeners import check_addresses
from gateway.config.settings import Settings
from gateway.config.sources import Source, Table, merged, origins, placed, read_sources


def load_settings(
    *,
    file: Path | None = None,
    assignments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Return the checked settings.

    ``assignments`` are ``a.b.c=value`` texts; ``environment`` is usually ``os.environ``. A
    variable without ``__`` in its name is left alone: container platforms make such variables
    (``HEADGATE_PORT_9092_TCP``) for any service called headgate. Errors: ``InvalidSettings``.
    """
    sources = read_sources(file=file, assignments=assignments, environment=environment)
    if not any(source.is_file and "adapters" in source.table for source in sources):
        # Below the rest, so that --set moves a built-in adapter without hiding the others.
        started: Table = {name: {} for name in registry.started_adapters()}
        sources.insert(0, Source("", {"adapters": started}))
    table = merged(sources)
    _lay_below(table)
    _lay_unconfigured(table, sources)
    settings = Checker(placed(sources)).check(table)
    check_addresses(settings)
    return settings.with_origins(origins(one for one in sources if one.name))


def _lay_below(merged: Table) -> None:
    """Apply the storage's defaults for keys of other tables that are not set."""
    storage = merged.get("storage", {})
    name = storage.get("adapter") if isinstance(storage, dict) else None
    if name is None:
        return
    try:
        suited = registry.config_class(registry.storage_class(str(name))).defaults_elsewhere
    except (registry.UnknownPlugin, registry.BrokenPlugin):
        return  # the check finds words for it
    for path, values in suited.items():
        section = _table_at(merged, path)
        if section is not None and not section.keys() & values.keys():
            section.update(values)


def _lay_unconfigured(merged: Table, sources: Sequence[Source]) -> None:
    """Add the default config of adapters that start without one."""
    adapters = merged.get("adapters")
    if sources[0].name or not isinstance(adapters, dict):
        return
    for name in registry.started_adapters():
        if any(name in source.table.get("adapters", {}) for source in sources[1:]):
            continue
        config = registry.config_class(registry.adapter_class(name))
        adapters[name] = {**config.when_unconfigured, **adapters[name]}


def _table_at(merged: Table, path: str) -> Table | None:
    """Return a table, created if missing; not an adapter's, because that would start it."""
    parent, _, name = path.rpartition(".")
    above = merged.get(parent) if parent else merged
    if not isinstance(above, dict):
        return None
    found = above.get(name) if parent else above.setdefault(name, {})
    return found if isinstance(found, dict) else None
