"""Public modules of docs/plugins.md exist, and the examples import no others."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.kafka.server import KafkaAdapter
from adapters.mqtt.server import MqttAdapter
from adapters.sqs.server import SqsAdapter
from gateway import registry
from gateway.kernel import ProtocolAdapter

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text()


def public_modules() -> list[str]:
    """Return the modules in the page's table."""
    section = PAGE.partition("### Public modules")[2].partition("\n### ")[0]
    return re.findall(r"^\| `(gateway[a-z_.]*)` \|", section, re.MULTILINE)


def imports_of_the_examples() -> Iterator[tuple[str, str]]:
    """Yield (module of ours, file) for each import in the example plug-ins."""
    for path in sorted((ROOT / "examples").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gateway"):
                yield str(node.module), path.name


@pytest.mark.parametrize("name", public_modules())
def test_a_public_module_can_be_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__


def test_the_examples_import_public_modules_only() -> None:
    found = list(imports_of_the_examples())
    assert found, "the examples import something"
    assert [one for one in found if one[0] not in public_modules()] == []


def test_the_page_has_the_number_of_the_interface() -> None:
    assert f"This version of Headgate has interface **{registry.PLUGIN_API}**." in PAGE


def test_built_in_adapters_keep_to_the_port_of_plugins() -> None:
    kinds: list[type[ProtocolAdapter]] = [KafkaAdapter, MqttAdapter, SqsAdapter]  # for mypy
    required = {name for name in vars(ProtocolAdapter) if not name.startswith("_")} | {"Config"}
    for kind in kinds:
        assert required <= set(dir(kind)), kind
