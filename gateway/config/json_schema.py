"""JSON Schema of the config file, made of the config classes, for editors and for checks."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway import registry
from gateway.config.base import FrozenConfig
from gateway.config.settings import Settings, StorageConfig

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TITLE: Final = "Config file of Headgate"


def config_schema() -> dict[str, Any]:
    """Return the schema, with the built-in adapters and the installed plug-ins."""
    tables = dict(_tables())
    adapters, storages = dict(_adapters()), dict(_storages())
    models = {*tables.values(), *adapters.values(), *storages.values()}
    refs, definitions = models_json_schema(
        [(model, "validation") for model in sorted(models, key=_full_name)]
    )
    found = {model: refs[model, "validation"] for model in models}
    properties: dict[str, Any] = {
        name: _many(found[model]) if _is_many(name) else found[model]
        for name, model in tables.items()
    }
    properties["adapters"] = {
        "type": "object",
        "additionalProperties": {"type": "object"},  # of plug-ins that are not installed here
        "properties": {name: found[model] for name, model in adapters.items()},
    }
    defs = {name: _without_titles(part) for name, part in definitions["$defs"].items()}
    properties["storage"] = _storage(storages, found, defs)
    return {
        "$schema": DIALECT,
        "title": _TITLE,
        "type": "object",
        "additionalProperties": False,
        "properties": dict(sorted(properties.items())),
        "$defs": defs,
    }


def _tables() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield each table of the settings that has a class of its own."""
    for name, field in Settings.model_fields.items():
        if name in {"adapters", "storage"}:
            continue
        kind = field.annotation
        model = get_args(kind)[0] if get_origin(kind) is tuple else kind
        assert isinstance(model, type)
        yield name, model


def _is_many(name: str) -> bool:
    return get_origin(Settings.model_fields[name].annotation) is tuple


def _adapters() -> Iterator[tuple[str, type[FrozenConfig]]]:
    for name in registry.adapter_names():
        with suppress(registry.BrokenPlugin):  # what it needs is not installed
            yield name, registry.config_class(registry.adapter_class(name))


def _storages() -> Iterator[tuple[str, type[FrozenConfig]]]:
    for name in registry.storage_names():
        with suppress(registry.BrokenPlugin):
            yield name, registry.config_class(registry.storage_class(name))


def _storage(
    storages: dict[str, type[FrozenConfig]],
    refs: dict[type[BaseModel], Any],
    defs: dict[str, Any],
) -> dict[str, Any]:
    """Return ``[storage]``: the keys of the storage that ``adapter`` names, or the default's."""
    usual = StorageConfig.model_fields["adapter"].default
    cases = []
    for name, model in storages.items():
        own = defs[refs[model]["$ref"].rpartition("/")[2]]
        required = [*own.get("required", []), *(["adapter"] if name != usual else [])]
        case = {**own, "properties": {"adapter": {"const": name}, **own.get("properties", {})}}
        cases.append({**case, "required": required} if required else case)
    return {"type": "object", "anyOf": cases}


def _many(ref: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": ref}


def _without_titles(part: dict[str, Any]) -> dict[str, Any]:
    """Return a definition without the titles that repeat its keys."""
    properties = {
        key: {name: value for name, value in one.items() if name != "title"}
        for key, one in part.get("properties", {}).items()
    }
    return {**part, "properties": properties} if properties else part


def _full_name(model: type[BaseModel]) -> str:
    return f"{model.__module__}.{model.__qualname__}"
