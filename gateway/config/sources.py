"""Sources of settings: config files, the environment and ``--set``, as tables that are merged.

Values are read as TOML; what is not TOML is text, so quotes may be left out. The standard library
alone is needed here: commands about a running node look up two keys of it, and start quickly.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway.errors import InvalidSettings

ENVIRONMENT_PREFIX: Final = "HEADGATE_"
FILE_VARIABLE: Final = "HEADGATE_CONFIG"
CONF_D: Final = "conf.d"
"""Folder beside the config file; its files are read after it, in the order of their names."""
FILES_MAX: Final = 1_000
_KEY_SEPARATOR: Final = "__"
_SUFFIX: Final = ".toml"

Table = dict[str, Any]


class Source(NamedTuple):
    """Source of some keys, in the operator's words, and the keys.

    ``is_file``: its lists of tables (``[[topics]]``) are added to those of the files before.
    """

    name: str
    table: Table
    is_file: bool = False


def read_sources(
    *,
    file: Path | None = None,
    assignments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[Source]:
    """Return the sources, the strongest last. Errors: ``InvalidSettings``."""
    environment = environment or {}
    if file is None and environment.get(FILE_VARIABLE):
        file = Path(environment[FILE_VARIABLE])
    sources = [] if file is None else [_read_file(one) for one in config_files(file)]
    sources += _from_environment(environment)
    return sources + [_from_assignment(text) for text in assignments]


def config_files(file: Path) -> list[Path]:
    """Return the config files in the order in which they are read.

    ``file`` is a file, to which those of a folder ``conf.d`` beside it are added, or a folder.
    """
    if file.is_dir():
        found = _toml_files(file)
        if not found:
            raise InvalidSettings(f"{file}: has no file *{_SUFFIX}")
        return found
    return [file, *_toml_files(file.parent / CONF_D)]


def merged(sources: Iterable[Source]) -> Table:
    """Return one table; a later source's value replaces an earlier one's.

    Errors: ``InvalidSettings``.
    """
    into: Table = {}
    for source in sources:
        _merge(into, source)
    return into


def placed(sources: Sequence[Source]) -> list[Source]:
    """Return the sources with each list of tables as a dict by the index in the merged list.

    So the path of a key, ``topics[3].name``, leads to the file that it is in.
    """
    counts: dict[str, int] = {}
    found = []
    for source in sources:
        table = dict(source.table)
        for key, value in source.table.items() if source.is_file else ():
            if is_list_of_tables(value):
                start = counts.get(key, 0)
                table[key] = dict(enumerate(value, start))
                counts[key] = start + len(value)
        found.append(source._replace(table=table))
    return found


def origins(sources: Iterable[Source]) -> dict[str, str]:
    """Return the name of the source of each dotted key; a list is one key.

    >>> origins([Source("a.toml", {"log": {"level": "info"}, "topics": [{"name": "t"}]})])
    {'topics': 'a.toml', 'log.level': 'a.toml'}
    """
    found: dict[str, str] = {}
    for source in sources:
        waiting: list[tuple[str, Mapping[str, Any]]] = [("", source.table)]
        while waiting:
            path, table = waiting.pop()
            for key, value in table.items():
                if isinstance(value, Mapping):
                    waiting.append((f"{path}{key}.", value))
                else:
                    found[f"{path}{key}"] = source.name
    return found


def origin_of(key: str, known: Mapping[str, str]) -> str | None:
    """Return the source of a dotted key, or of the table that it is in.

    >>> origin_of("topic_defaults.configs.retention.ms", {"topic_defaults.configs": "a.toml"})
    'a.toml'
    """
    path = key
    while path:
        if path in known:
            return known[path]
        path = path.rpartition(".")[0]
    return None


def is_list_of_tables(value: object) -> bool:
    """Say whether a value is an array of tables, ``[[topics]]``."""
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _toml_files(folder: Path) -> list[Path]:
    try:
        found = sorted(one for one in folder.iterdir() if one.suffix == _SUFFIX)
    except OSError:
        return []
    if len(found) > FILES_MAX:
        raise InvalidSettings(f"{folder}: has more than {FILES_MAX} files")
    return found


def _read_file(file: Path) -> Source:
    try:
        return Source(str(file), tomllib.loads(file.read_text("utf-8")), is_file=True)
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


def _merge(into: Table, source: Source) -> None:
    """Lay a source's table over another; tables are merged, all else is replaced."""
    waiting = [(into, source.table, "")]
    while waiting:
        below, above, path = waiting.pop()
        for key, value in above.items():
            if not isinstance(value, Mapping):
                there = below.get(key)
                adds = source.is_file and not path and is_list_of_tables(value)
                below[key] = there + value if adds and is_list_of_tables(there) else value
                continue
            existing = below.setdefault(key, {})
            if not isinstance(existing, dict):
                msg = f"{source.name}: {path}{key}: is a value, not a table"
                raise InvalidSettings(msg)
            waiting.append((existing, dict(value), f"{path}{key}."))
