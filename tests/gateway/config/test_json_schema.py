"""The schema of the config file accepts what the loader accepts, and refuses what it refuses."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway import registry
from gateway.cli.config_reference import keys_of, sections
from gateway.config.json_schema import config_schema
from gateway.config.loader import load_settings
from gateway.config.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = config_schema()
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "boolean": bool,
    "number": (int, float), "null": type(None),
}  # fmt: skip


def faults(value: Any, schema: Any, path: str = "") -> Iterator[str]:
    """Yield what a value breaks of a schema: of the words that our schema uses."""
    if "$ref" in schema:
        yield from faults(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], path)
        return
    if "anyOf" in schema and all(list(faults(value, one, path)) for one in schema["anyOf"]):
        yield f"{path}: none of anyOf"
    kinds = schema.get("type", list(TYPES))
    names = [kinds] if isinstance(kinds, str) else kinds
    is_bool = isinstance(value, bool)
    if not any(isinstance(value, TYPES[k]) and (not is_bool or k == "boolean") for k in names):
        yield f"{path}: no {names}"
        return
    if value not in schema.get("enum", [value]) or schema.get("const", value) != value:
        yield f"{path}: another value"
    yield from bounds(value, schema, path)
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from faults(one, schema.get("items", {}), f"{path}[{at}]")
    if isinstance(value, dict):
        yield from faults_of_table(value, schema, path)


def bounds(value: Any, schema: Any, path: str) -> Iterator[str]:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    size = value if is_number else len(value) if isinstance(value, str) else None
    low, high = ("minimum", "maximum") if is_number else ("minLength", "maxLength")
    if size is not None and not schema.get(low, size) <= size <= schema.get(high, size):
        yield f"{path}: out of bounds"


def faults_of_table(value: dict[str, Any], schema: Any, path: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    yield from (
        f"{path}.{key}: missing" for key in schema.get("required", []) if key not in value
    )
    for key, one in value.items():
        below = properties.get(key, schema.get("additionalProperties", True))
        if below is False:
            yield f"{path}.{key}: unknown"
        elif below is not True:
            yield from faults(one, below, f"{path}.{key}")


def examples() -> list[str]:
    """Return the config files of the documentation."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = []
    for page in pages:
        for block in re.findall(r"(?:^    .*\n|^\n)+", page.read_text(), re.MULTILINE):
            text = "\n".join(line[4:] for line in block.splitlines())
            if is_config(text):
                found.append(text)
    return found


def is_config(text: str) -> bool:
    """Say whether a block of a page is a config file: tables of it, and nothing else."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return bool(table) and table.keys() <= SCHEMA["properties"].keys()


def test_there_are_examples() -> None:
    assert len(examples()) > 5


@pytest.mark.parametrize("text", examples())
def test_what_the_documentation_shows_is_valid(text: str) -> None:
    assert list(faults(tomllib.loads(text), SCHEMA)) == []


@pytest.mark.parametrize(
    "text",
    [
        "[nod]\n",
        '[node]\nnode_id = "one"\n',
        "[node]\nnode_id = 0\n",
        "[node]\nnode = 1\n",
        '[storage]\nflush = "sometimes"\n',
        '[storage]\nadapter = "s3"\n',
        '[storage]\nadapter = "memory"\nflush = "group"\n',
        "[[topics]]\npartitions = 3\n",
        '[[topics]]\nname = "t"\ndeclared = "perhaps"\n',
        "[adapters.kafka]\nbin = 5\n",
        '[log]\nlevel = "loud"\n',
    ],
)
def test_what_the_loader_refuses_the_schema_refuses(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is
        load_settings(file=tmp_path / "bad.toml")
    assert list(faults(tomllib.loads(text), SCHEMA)) != []


def test_every_table_and_key_is_in_the_schema() -> None:
    assert SCHEMA["properties"].keys() == Settings.model_fields.keys()
    assert SCHEMA["properties"]["adapters"]["properties"].keys() >= registry.ADAPTERS.keys()
    words = json.dumps(SCHEMA)
    for _, model in sections():
        assert all(f'"{key}"' in words for key in keys_of(model))


def test_numbers_are_values_of_topic_configs() -> None:
    text = '[[topics]]\nname = "t"\nconfigs = {"retention.ms" = 5, "preallocate" = true}\n'
    assert list(faults(tomllib.loads(text), SCHEMA)) == []
