"""docs/limits.md lists every bound of the config with its default."""

import re
from pathlib import Path

import pytest
from pydantic import Field

from gateway.cli.config_reference import default_text
from gateway.cli.limit_keys import limit_keys, rows_of
from gateway.config.base import FrozenConfig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "limits.md"
LIMITS = limit_keys()


def defaults_in(cell: str) -> set[str]:
    return set(re.findall(r"`[^`]+`|not set", cell))


@pytest.mark.parametrize("path", sorted(LIMITS))
def test_every_bound_is_listed_with_its_default(path: str) -> None:
    rows = dict(rows_of(PAGE.read_text()))
    row = f"| `{path}` | {', '.join(sorted(LIMITS[path], key=len))} | what the peer sees |"
    assert path in rows, f"docs/limits.md has no row for {path}; add {row}"
    assert defaults_in(rows[path]) == LIMITS[path], f"docs/limits.md: {row}"


def test_no_key_is_listed_twice_or_does_not_exist() -> None:
    listed = [path for path, _ in rows_of(PAGE.read_text())]
    assert sorted(listed) == sorted(set(listed))
    assert [path for path in listed if path not in LIMITS] == []


class Fraction(FrozenConfig):
    """A section with a bound that is no integer, as a plugin may have."""

    share_max: float = Field(default=0.25, ge=0, description="Share.")
    wait_s_max: float | None = Field(default=1.5, description="Wait.")


def test_a_default_that_is_no_integer_is_shown() -> None:
    fields = Fraction.model_fields
    assert default_text(fields["share_max"]) == "`0.25`"
    assert default_text(fields["wait_s_max"]) == "`1.5`"
