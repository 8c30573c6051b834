"""``export``, ``import`` and ``apply``: a node's metadata as a file, there and back."""

import io
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.gateway import Gateway


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Return a second node, which is empty."""
    with Gateway(tmp_path_factory.mktemp("other") / "data") as gateway:
        yield gateway


def at(node: Gateway) -> tuple[str, str]:
    return "--set", f"node.data_dir={node.data_dir}"


def fill(run: Run, node: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one of everything."""
    there = at(node)
    for command in (
        ("topics", "create", "orders", "-p", "3", "-c", "retention.ms=5000"),
        ("queues", "create", "dead.fifo", "order=key"),
        (
            "queues",
            "create",
            "work.fifo",
            "order=key",
            "dead_letter_topic=dead.fifo",
            "-p",
            "2",
        ),
        ("queues", "create", "orders", "lease_ms=7000"),
        ("exchanges", "create", "events", "-t", "topic"),
        ("exchanges", "create", "heads", "-t", "headers", "-a", "x-note=1"),
        ("bindings", "create", "events", "orders", "--key", "a.*"),
        ("quotas", "set", "producer_byte_rate=1000", "--user", "ada"),
        ("quotas", "set", "connection_creation_rate=5", "--ip", "<default>"),
        ("rules", "add", "allow", "read", "topic", "or", "--prefix", "--user", "ada"),
    ):
        done = run(*command, *there)
        assert done.status == 0, done
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    assert run("users", "add", "ada", "--password-stdin", *there).status == 0
    assert run("users", "keys", "add", "ada", *there).status == 0


def fill_once(run: Run, node: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one of everything, unless another test of this file has."""
    if "users" not in tomllib.loads(run("export", *at(node)).out):
        fill(run, node, monkeypatch)


def test_an_export_makes_another_node_the_same(
    run: Run, node: Gateway, other: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_once(run, node, monkeypatch)
    file = tmp_path / "node.toml"
    assert run("export", str(file), "--secrets", *at(node)).status == 0
    assert file.stat().st_mode & 0o777 == 0o600

    shown = run("import", str(file), "--dry-run", *at(other))
    assert shown.status == 0, shown.err
    assert run("topics", "ls", "--json", *at(other)).json == []
    assert run("import", str(file), *at(other)).status == 0
    assert run("export", "--secrets", *at(other)).out == file.read_text()
    assert run("import", str(file), *at(other)).out == "nothing to change\n"
    assert run("apply", str(file), *at(node)).out == "nothing to change\n"

    # A queue that made its topic takes it along when it goes.
    assert run("queues", "delete", "work.fifo", "--yes", *at(other)).status == 0
    assert "work.fifo" not in {
        t["name"] for t in run("topics", "ls", "--json", *at(other)).json
    }


def test_secrets_are_left_out_unless_they_are_asked_for(
    run: Run, node: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_once(run, node, monkeypatch)
    plain = run("export", *at(node)).out
    assert "SCRAM" not in plain
    assert "secret" not in plain
    (user,) = tomllib.loads(plain)["users"]
    assert (user["name"], user["administrator"]) == ("ada", True)
    whole = tomllib.loads(run("export", "--secrets", *at(node)).out)["users"][0]
    assert whole["scram"][0].startswith("SCRAM-SHA-")


def test_without_secrets_an_import_says_what_it_could_not_make(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.json"
    with Gateway(tmp_path / "filled") as filled:
        fill(run, filled, monkeypatch)
        assert run("export", str(file), "--json", *at(filled)).status == 0
    with Gateway(tmp_path / "data") as third:
        done = run("import", str(file), *at(third))
        assert done.status == 1
        assert "export with --secrets" in done.out
        assert {t["name"] for t in run("topics", "ls", "--json", *at(third)).json} > {"orders"}


def test_apply_changes_what_differs_and_deletes_what_is_named(
    run: Run, other: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    file = tmp_path / "wanted.toml"
    file.write_text(
        '[node]\ndata_dir = "elsewhere"\n'
        '[[topics]]\nname = "bills"\npartitions = 2\ndeclared = "enforce"\n'
        '[[queues]]\nname = "jobs"\nlease_ms = 9000\n'
    )
    assert run("apply", str(file), *at(other)).status == 0
    file.write_text(file.read_text().replace("9000", "8000") + '[delete]\ntopics = ["bills"]\n')
    shown = run("apply", str(file), "--dry-run", "--json", *at(other)).json
    assert [(one["action"], one["kind"], one["name"]) for one in shown] == [
        ("alter", "queue", "jobs"),
        ("delete", "topic", "bills"),
    ]
    asked = run("apply", str(file), *at(other))
    assert (asked.status, "--yes" in asked.err) == (1, True)
    assert run("apply", str(file), "--yes", *at(other)).status == 0
    assert "bills" not in {t["name"] for t in run("topics", "ls", "--json", *at(other)).json}
    settings = run("queues", "show", "jobs", "--json", *at(other)).json["settings"]
    assert settings["lease_ms"] == 8_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not toml", "Expected"),
        ('[[topics]]\nname = "a/b"\n', "1 to 249"),
        ('[[queues]]\nname = "q"\nlease = 5\n', "lease"),
        ("topics = 5\n", "topics"),
    ],
)
def test_a_bad_file_is_refused_and_nothing_is_made(
    run: Run, other: Gateway, tmp_path: Path, text: str, said: str
) -> None:
    before = run("export", *at(other)).out
    (tmp_path / "bad.toml").write_text(text)
    done = run("apply", str(tmp_path / "bad.toml"), *at(other))
    assert (done.status, done.out) == (1, "")
    assert said in done.err
    assert run("export", *at(other)).out == before


def test_status_shows_where_a_node_differs_from_its_file(run: Run, tmp_path: Path) -> None:
    declared = {"topics": '[{name = "t", configs = {"retention.ms" = 5000}}]'}
    with Gateway(tmp_path / "data", declared) as node:
        assert run("status", "--json", *at(node)).json["drift"] == []
        assert run("topics", "alter", "t", "-c", "retention.ms=6000", *at(node)).status == 0
        lines = run("status", *at(node)).out.splitlines()
        assert "drift: alter topic t (retention.ms 6000 to 5000)" in lines
