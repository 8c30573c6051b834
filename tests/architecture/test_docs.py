"""The documentation says what the code does."""

import re
from pathlib import Path

import pytest

from gateway import registry
from gateway.cli.commands import COMMANDS
from gateway.cli.config_reference import BEGIN, END, keys_of, reference, sections
from gateway.config.base import FrozenConfig
from gateway.config.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "docs" / "configuration.md"


def table_of(text: str, title: str) -> str:
    """Return what stands under a section's heading."""
    assert f"### `{title}`\n" in text, f"{CONFIGURATION} has no section {title}"
    return text.partition(f"### `{title}`\n")[2].partition("\n### ")[0]


@pytest.mark.parametrize(("title", "model"), list(sections()))
def test_every_config_key_is_documented(title: str, model: type[FrozenConfig]) -> None:
    table = table_of(CONFIGURATION.read_text(), title)
    for key in keys_of(model):
        row = next((r for r in table.splitlines() if r.startswith(f"| `{key}` |")), None)
        assert row is not None, f"docs/configuration.md: {title} {key} is missing"
        assert not row.endswith("|  |"), f"{title} {key} has no description"


def test_every_section_of_the_settings_is_documented() -> None:
    titles = " ".join(title for title, _ in sections())
    names = [*Settings.model_fields, *(f"adapters.{name}" for name in registry.ADAPTERS)]
    assert [name for name in names if f"[{name}" not in titles] == []


def test_the_tables_are_those_that_the_command_makes() -> None:
    text = CONFIGURATION.read_text()
    made = BEGIN + text.partition(BEGIN)[2].partition(END)[0] + END
    assert made == reference(), (
        "docs/configuration.md is not current: replace its tables by the output of "
        "`headgate check-config --reference`"
    )


@pytest.mark.parametrize("command", sorted({"serve", *COMMANDS}))
def test_every_command_is_documented(command: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    said = "\n".join(page.read_text() for page in pages if page.exists())
    assert f"headgate {command}" in said


@pytest.mark.parametrize("page", ["architecture.md", "fast-paths.md"])
def test_the_files_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    folders = "gateway|adapters|features|storage_adapters|pipeline|examples|tests|benchmarks"
    named = re.findall(rf"`((?:{folders})/[\w/.]*)`", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_reading_order_names_files_that_are_there() -> None:
    """Names without a folder are in the folder that the step has named before them."""
    text = (ROOT / "docs/architecture.md").read_text()
    order = text.partition("## Reading order")[2].partition("\n## ")[0]
    steps = re.split(r"\n(?=\d+\. )", order)[1:]
    assert len(steps) > 1
    assert [name for step in steps for name in missing_files(step)] == []


def missing_files(step: str) -> list[str]:
    folder, missing = ROOT, []
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", step):
        if name.endswith("/") and (ROOT / name).exists():
            folder = ROOT / name
        elif not (ROOT / name).exists() and not (folder / name).exists():
            missing.append(name)
    return missing
