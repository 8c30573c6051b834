"""``init``, ``config schema`` and what ``check-config`` finds besides bad keys."""

import json
import re
import socket
import tomllib
from pathlib import Path

import pytest

from gateway.config.loader import load_settings
from gateway.config.text import as_tables
from tests.cli.conftest import Run


def test_init_writes_a_file_that_changes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        run("init").out == "wrote headgate.toml; next: headgate serve --config headgate.toml\n"
    )
    found, usual = load_settings(file=Path("headgate.toml")), load_settings()
    found_tables, usual_tables = as_tables(found), as_tables(usual)
    for tables in (found_tables, usual_tables):  # on by default only without a file
        del tables["adapters"]["mqtt"]["websocket"], tables["adapters"]["amqp"]["management"]
    assert found_tables == usual_tables


def test_what_init_comments_out_is_valid(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    assert run("init", str(file)).status == 0
    text = re.sub(
        r"^# (\w[\w.]* = (?!\.\.\.)|\[\[)", r"\1", file.read_text(), flags=re.MULTILINE
    )
    assert tomllib.loads(text)["queues"][0]["attempts_max"] == 5
    file.write_text(re.sub(r"^password_file.*$", "", text, flags=re.MULTILINE))
    assert load_settings(file=file).topics[0].partitions == 6


def test_init_replaces_no_file_unless_it_is_told_to(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("mine")
    refused = run("init", str(file))
    assert (refused.status, file.read_text()) == (1, "mine")
    assert "--force" in refused.err
    assert run("init", str(file), "--force").status == 0


def test_the_schema_is_json(run: Run) -> None:
    assert json.loads(run("config", "schema").out)["type"] == "object"


def test_an_address_that_is_taken_is_a_warning(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        bind = f"127.0.0.1:{server.getsockname()[1]}"
        done = run("check-config", "--set", f"admin.bind={bind}")
        assert done.status == 0
        assert f"# warning: admin.bind: {bind}: Address already in use" in done.out
        strict = run("check-config", "--strict", "--set", f"admin.bind={bind}")
        assert (strict.status, "with --strict" in strict.err) == (1, True)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("admin.bind=127.0.0.1:9092", "is taken by"),
        ('topics=[{name = "a b"}]', "1 to 249"),
        ('queues=[{name = "a/b"}]', "1 to 249"),
        ("adapters.kafka={tls_cert = '/none', tls_key = '/none'}", "No such file"),
    ],
)
def test_what_a_start_would_refuse_is_found(run: Run, setting: str, said: str) -> None:
    done = run("check-config", "--set", setting)
    assert (done.status, said in done.err) == (2, True)
