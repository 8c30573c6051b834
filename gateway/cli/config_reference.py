"""Tables of docs/configuration.md, generated from the config classes.

``headgate check-config --reference`` prints them.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gateway import registry
from gateway.config.auth import AuthRule
from gateway.config.base import FrozenConfig
from gateway.config.exchanges import DeclaredBinding, DeclaredExchange
from gateway.config.queues import DeclaredQueue
from gateway.config.quotas import DeclaredQuota
from gateway.config.settings import Settings, TopicConfig
from gateway.config.toml_text import format_value
from gateway.config.users import DeclaredUser

BEGIN: Final = "<!-- made by `headgate check-config --reference`; do not edit below -->"
END: Final = "<!-- made until here -->"
_HEAD: Final = ("| key | default | values | meaning |", "|---|---|---|---|")
_DECLARED: Final[Mapping[str, type[FrozenConfig]]] = {
    "topics": TopicConfig,
    "queues": DeclaredQueue,
    "exchanges": DeclaredExchange,
    "bindings": DeclaredBinding,
    "users": DeclaredUser,
    "quotas": DeclaredQuota,
}
"""Tables that may occur several times, by name."""
_TYPES: Final[Mapping[object, str]] = {
    bool: "`true`, `false`",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    dict: "table",
    tuple: "list",
}

Section = tuple[str, type[FrozenConfig]]


def reference() -> str:
    """Return a heading and a table for every section, in Markdown."""
    lines = [BEGIN]
    for title, model in sections():
        lines += ["", f"### `{title}`", "", *_prose(model)]
        rows = [_row(model, key) for key in keys_of(model)]
        if rows:
            lines += ["", *_HEAD, *rows]
    return "\n".join([*lines, "", END])


def sections() -> Iterator[Section]:
    """Yield each table of the config file, with its name there and its class."""
    for name, field in Settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, FrozenConfig):
            yield f"[{name}]", model
        if name == "storage":
            for storage in registry.STORAGE_ADAPTERS:
                title = f'[storage] with adapter = "{storage}"'
                with suppress(registry.BrokenPlugin):  # what it needs is not installed
                    yield title, registry.config_class(registry.storage_class(storage))
        elif name == "auth":
            yield "[[auth.rules]]", AuthRule
        elif name == "adapters":
            for adapter in registry.ADAPTERS:
                model = registry.config_class(registry.adapter_class(adapter))
                yield f"[adapters.{adapter}]", model
                yield from _below(f"adapters.{adapter}", model)
        elif name in _DECLARED:
            yield f"[[{name}]]", _DECLARED[name]
            yield from _below(name, _DECLARED[name])


def _below(path: str, model: type[FrozenConfig]) -> Iterator[Section]:
    """Yield the tables below a section; repeatable ones in double brackets."""
    for key, field in model.model_fields.items():
        table = _table_of(field)
        if table is not None:
            is_many = get_origin(field.annotation) is tuple
            yield (f"[[{path}.{key}]]" if is_many else f"[{path}.{key}]"), table


def _table_of(field: FieldInfo) -> type[FrozenConfig] | None:
    """Return the class of a key that is a table (or a list of tables), else None."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, FrozenConfig):
            return kind
    return None


def keys_of(model: type[FrozenConfig]) -> list[str]:
    """Return the keys that a section has in the file, without the tables below it."""
    return [
        key
        for key, field in model.model_fields.items()
        if not field.exclude and _table_of(field) is None
    ]


def _prose(model: type[FrozenConfig]) -> list[str]:
    first_paragraph = (model.__doc__ or "").split("\n\n")[0]
    return [" ".join(first_paragraph.split()).replace("``", "`")]


def _row(model: type[FrozenConfig], key: str) -> str:
    field = model.model_fields[key]
    cells = (f"`{key}`", default_text(field), _values(field), meaning(model, key))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def meaning(model: type[FrozenConfig], key: str) -> str:
    """Return a key's description, from a base class if the class has none."""
    for kind in model.__mro__:
        fields = getattr(kind, "model_fields", {})
        if key in fields and fields[key].description:
            return str(fields[key].description)
    return ""


def default_text(field: FieldInfo) -> str:
    """Return a key's default as the tables show it."""
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "(must be set)"
    if value is None:
        return "not set"
    if isinstance(value, bool | int | float | str | Path):
        return f"`{format_value(str(value) if isinstance(value, Path) else value)}`"
    return "none"


def _values(field: FieldInfo) -> str:
    """Return the type and the bounds of a key."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    kind = field.annotation
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:  # X | None
        kind, kinds = kinds[0], list(get_args(kinds[0]))
    if get_origin(kind) is Literal:
        return ", ".join(f"`{format_value(value)}`" for value in kinds)
    if kind not in _TYPES and get_origin(kind) not in _TYPES and kinds:
        kind = kinds[0]  # X | None
        kind = get_args(kind)[0] if get_origin(kind) not in (None, *_TYPES) else kind
    text = _TYPES.get(get_origin(kind) or kind, "text")
    low = next((m.ge for m in field.metadata if hasattr(m, "ge")), None)
    high = next((m.le for m in field.metadata if hasattr(m, "le")), None)
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"from {low}" if low is not None else text
