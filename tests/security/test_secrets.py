"""Secrets of the settings: printed by no command, and in no line about what is wrong."""

import pytest

from gateway.config.secrets import mask_url
from tests.cli.conftest import Run, run  # noqa: F401 - a fixture

URL = "postgresql+psycopg://ada:hidden-1@db.example:5432/headgate?sslpassword=hidden-2"


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_check_config_masks_the_password_of_a_url(run: Run, how: tuple[str, ...]) -> None:  # noqa: F811
    done = run("check-config", *how, "--set", f"metadata.url={URL}")
    assert done.status == 0, done.err
    assert "postgresql+psycopg://ada:***@db.example:5432/headgate" in done.out
    assert "hidden" not in done.out + done.err


def test_a_line_about_a_bad_secret_does_not_show_it(run: Run) -> None:  # noqa: F811
    done = run("check-config", "--set", 'metadata.url=["hidden-3"]')
    assert done.status == 2
    assert "metadata.url" in done.err
    assert "hidden" not in done.err


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite", "sqlite"),
        ("sqlite:////var/lib/headgate/m.sqlite", "sqlite:////var/lib/headgate/m.sqlite"),
        ("postgresql://ada@db/x", "postgresql://ada@db/x"),
        ("postgresql://ada:p@ss:w/rd@db/x", "postgresql://ada:***@db/x"),
        ("http://:secret@127.0.0.1:9000", "http://:***@127.0.0.1:9000"),
    ],
)
def test_of_a_url_the_password_is_masked_and_nothing_else(url: str, shown: str) -> None:
    assert mask_url(url) == shown
