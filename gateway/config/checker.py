"""Checks merged settings against their sections and words what is wrong, one line per key."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway import registry
from gateway.auth.resource_types import ResourceTypes
from gateway.auth.rule_words import to_rule, wrong_word
from gateway.config.auth import AuthRule
from gateway.config.base import FrozenConfig, InvalidSettings
from gateway.config.secrets import SECRET, SECRET_URL, is_secret
from gateway.config.settings import Settings, StorageConfig
from gateway.config.sources import Source, Table
from gateway.contributions import Contributions, InvalidContribution
from gateway.errors import InvalidRequest

KeyPath = tuple[int | str, ...]
C = TypeVar("C", bound=FrozenConfig)


class Checker:
    """Makes a ``Settings`` of a merged table and gathers one line per bad key."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._faults: list[str] = []
        self._types = ResourceTypes()

    def check(self, merged: Table) -> Settings:
        """Return the settings. Errors: ``InvalidSettings`` with every fault found."""
        table = dict(merged)
        adapters = self._check_adapters(table.pop("adapters", {}))
        storage = self._check_storage(table.pop("storage", {}))
        settings = self._section(Settings, table, ())
        if settings is not None and not self._faults:
            self._check_rules(settings.auth.rules)
        if self._faults or settings is None:
            raise InvalidSettings("\n".join(self._faults))
        return settings.model_copy(update={"adapters": adapters, "storage": storage})

    def _check_adapters(self, tables: object) -> dict[str, FrozenConfig]:
        if not isinstance(tables, dict):
            self._add(("adapters",), "is not a table of tables")
            return {}
        configs = {}
        for name, table in tables.items():
            path = ("adapters", name)
            try:
                plugin = registry.config_class(registry.adapter_class(name))
            except (registry.UnknownPlugin, registry.BrokenPlugin) as error:
                self._add(path, str(error))
                continue
            config = self._section(plugin, table, path)
            if config is not None:
                configs[name] = config
        try:
            self._types = Contributions.of(configs).resource_types
        except InvalidContribution as error:
            self._add(("adapters",), str(error))
        return configs

    def _check_rules(self, rules: Sequence[AuthRule]) -> None:
        for number, rule in enumerate(rules):
            path = ("auth", "rules", number)
            if wrong := wrong_word(rule, self._types):
                self._add((*path, wrong[0]), wrong[1])
                continue
            try:
                to_rule(rule, self._types)
            except InvalidRequest as error:
                self._add(path, str(error))

    def _check_storage(self, table: object) -> StorageConfig | None:
        if not isinstance(table, dict):
            self._add(("storage",), "is not a table")
            return None
        own = {key: value for key, value in table.items() if key != "adapter"}
        name = table.get("adapter", StorageConfig.model_fields["adapter"].default)
        try:
            plugin = registry.config_class(registry.storage_class(str(name)))
        except (registry.UnknownPlugin, registry.BrokenPlugin) as error:
            self._add(("storage", "adapter"), str(error))
            return None
        options = self._section(plugin, own, ("storage",))
        if options is None:
            return None
        return StorageConfig(adapter=str(name), options=options)

    def _section(self, model: type[C], table: object, path: KeyPath) -> C | None:
        try:
            return model.model_validate(table)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                self._add((*path, *detail["loc"]), _words(model, detail, path))
        return None

    def _add(self, path: KeyPath, words: str) -> None:
        origin = next((s.name for s in reversed(self._sources) if _reaches(s.table, path)), "")
        prefix = f"{origin}: " if origin else ""
        self._faults.append(f"{prefix}{dotted(path)}: {words}")


def _words(model: type[BaseModel], detail: ErrorDetails, path: KeyPath) -> str:
    """Return the error of one key; for an unknown key, with the nearest known one."""
    if detail["type"] != "extra_forbidden":
        message = detail["msg"].removeprefix("Value error, ")
        given = detail["input"]
        shown = isinstance(given, str | int | float) and not _is_hidden(model, detail["loc"])
        return f"{message[:1].lower()}{message[1:]}" + (f", not {given!r}" if shown else "")
    *parents, key = detail["loc"]
    section = _model_at(model, parents)
    if key == "enabled" and path[:1] == ("adapters",) and not parents:
        return _turned_off(str(path[1]), off=detail["input"] is False)
    near = difflib.get_close_matches(str(key), section.model_fields, n=1)
    if near:
        return f"unknown key; did you mean {dotted((*path, *parents, near[0]))}?"
    elsewhere = next((other for other in _all_keys() if other.endswith(f".{key}")), None)
    if elsewhere is not None:
        return f"unknown key; did you mean {elsewhere}?"
    return f"unknown key; there are: {', '.join(section.model_fields)}"


def _turned_off(adapter: str, *, off: bool) -> str:
    """Return how to turn an adapter on or off, for keys such as ``enabled``."""
    if off:
        return (
            f"unknown key; leave the table [adapters.{adapter}] out, and it is off (the file has "
            "to name one adapter at least: without any, all are on)"
        )
    return f"unknown key; leave it out: the table [adapters.{adapter}] turns the adapter on"


def _is_hidden(model: type[BaseModel], path: Sequence[int | str]) -> bool:
    if not path:
        return False
    section = _model_at(model, path[:-1])
    return any(is_secret(section, str(path[-1]), kind) for kind in (SECRET, SECRET_URL))


def _model_at(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel]:
    """Return the section that a key's path leads to."""
    for step in path:
        if isinstance(step, str) and step in model.model_fields:
            annotation = model.model_fields[step].annotation
            candidates = (annotation, *get_args(annotation))
            model = next(
                (c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)),
                model,
            )
    return model


def _all_keys() -> Iterator[str]:
    for section, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from (f"{section}.{key}" for key in field.annotation.model_fields)


def _reaches(table: object, path: KeyPath) -> bool:
    """Whether a source has set the key, or a table around it, itself."""
    for step in path:
        if isinstance(table, list):
            table = dict(enumerate(table))
        if not isinstance(table, Mapping) or step not in table:
            return not isinstance(table, Mapping)
        table = table[step]
    return True


def dotted(path: KeyPath) -> str:
    """Return a key's path as text: ``topics[0].name``.

    >>> dotted(("topics", 0, "name"))
    'topics[0].name'
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")
