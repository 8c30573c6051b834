"""Tables as the text of a config file."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_lines(
    table: Mapping[str, Any], default: Mapping[str, Any], path: str = ""
) -> Iterator[str]:
    """Yield a table as TOML lines; a key whose value is not ``default``'s says so."""
    plain = {key: value for key, value in table.items() if not _is_section(value)}
    if plain and path:
        yield f"[{path}]"
    for key, value in plain.items():
        yield _line(key, value, default)
    if plain:
        yield ""
    for key, value in table.items():
        inner_path = f"{path}.{format_key(key)}" if path else format_key(key)
        if isinstance(value, Mapping):
            yield from toml_lines(value, default.get(key) or {}, inner_path)
        elif _is_section(value):
            for item in value:
                yield f"[[{inner_path}]]"
                yield from (_line(name, part, {}) for name, part in item.items())
                yield ""


def format_key(key: str) -> str:
    """Return a key as TOML writes it.

    >>> format_key("node_id"), format_key("retention.ms")
    ('node_id', '"retention.ms"')
    """
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def format_value(value: object) -> str:
    """Return a value as TOML writes it, a table on one line.

    >>> format_value({"retention.ms": "5"}), format_value(True)
    ('{"retention.ms" = "5"}', 'true')
    """
    if isinstance(value, Mapping):
        inner = (f"{format_key(key)} = {format_value(part)}" for key, part in value.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _line(key: str, value: object, default: Mapping[str, Any]) -> str:
    usual = default.get(key)
    name = format_key(key)
    text = f"# {name} is not set" if value is None else f"{name} = {format_value(value)}"
    if key not in default or value == usual:
        return text
    return f"{text}  # default: {'not set' if usual is None else format_value(usual)}"


def _is_section(value: object) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
    )
