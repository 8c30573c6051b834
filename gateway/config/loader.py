"""``Settings`` from a TOML file, the environment and ``--set``; later ones win.

``HEADGATE_STORAGE__FLUSH=never`` and ``--set storage.flush=never`` mean ``flush = "never"`` in
``[storage]``. Values are read as TOML; what is not TOML is text, so quotes may be left out.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from gateway import registry
from gateway.config.base import InvalidSettings
from gateway.config.checker import Checker, Source, Table
from gateway.config.listeners import check_addresses
from gateway.config.settings import Settings

ENVIRONMENT_PREFIX: Final = "HEADGATE_"
FILE_VARIABLE: Final = "HEADGATE_CONFIG"
_KEY_SEPARATOR: Final = "__"


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
    environment = environment or {}
    if file is None and environment.get(FILE_VARIABLE):
        file = Path(environment[FILE_VARIABLE])
    sources = [_read_file(file)] if file is not None else []
    if not sources or "adapters" not in sources[0].table:
        # Below the rest, so that --set moves a built-in adapter without hiding the others.
        sources.insert(0, Source("", {"adapters": {name: {} for name in registry.ADAPTERS}}))
    sources += _from_environment(environment)
    sources += [_from_assignment(text) for text in assignments]
    merged: Table = {}
    for source in sources:
        _merge(merged, source)
    _lay_below(merged)
    _lay_unconfigured(merged, sources)
    settings = Checker(sources).check(merged)
    check_addresses(settings)
    return settings


def _read_file(file: Path) -> Source:
    try:
        return Source(str(file), tomllib.loads(file.read_text("utf-8")))
    except OSError as error:
        msg = f"{file}: {error.strerror or error}"
    except UnicodeDecodeError:
        msg = f"{file}: is not UTF-8 text"
    except tomllib.TOMLDecodeError as error:
        msg = f"{file}: is not TOML: {error}"
    raise InvalidSettings(msg)


def _from_environment(environment: Mapping[str, str]) -> Iterator[Source]:
    for name, value in sorted(environment.items()):
        if name.startswith(ENVIRONMENT_PREFIX) and _KEY_SEPARATOR in name:
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace(_KEY_SEPARATOR, ".")
            yield Source(name, _parse_assignment(key, value, origin=name))


def _from_assignment(text: str) -> Source:
    key, equals, value = text.partition("=")
    if not equals:
        msg = f"--set {text}: is not key=value"
        raise InvalidSettings(msg)
    return Source(f"--set {key.strip()}", _parse_assignment(key, value, origin=f"--set {text}"))


def _parse_assignment(key: str, value: str, *, origin: str) -> Table:
    """Return the nested table that sets one dotted key."""
    quoted = json.dumps(value, ensure_ascii=False)
    for candidate in (value, quoted):
        # A line break could smuggle in a second key; such a value can only be text.
        if "\n" not in candidate:
            try:
                return tomllib.loads(f"{key} = {candidate}")
            except tomllib.TOMLDecodeError:
                continue
    msg = f"{origin}: {key.strip()!r} is not a dotted key"
    raise InvalidSettings(msg)


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
    for name in registry.ADAPTERS:
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


def _merge(into: Table, source: Source) -> None:
    """Lay a source's table over another; tables are merged, all else is replaced."""
    waiting = [(into, source.table, "")]
    while waiting:
        below, above, path = waiting.pop()
        for key, value in above.items():
            if not isinstance(value, Mapping):
                below[key] = value
                continue
            existing = below.setdefault(key, {})
            if not isinstance(existing, dict):
                msg = f"{source.name}: {path}{key}: is a value, not a table"
                raise InvalidSettings(msg)
            waiting.append((existing, dict(value), f"{path}{key}."))
