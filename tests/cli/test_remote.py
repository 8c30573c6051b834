"""Commands about a node of another machine: by its URL and a file with its token."""

from pathlib import Path

import pytest

from gateway.cli.find_node import _BIND, _DATA_DIR
from gateway.config.settings import Settings
from tests.cli.conftest import Run
from tests.support.gateway import Gateway


class Address:
    """Arguments and environment that name the node of a test."""

    def __init__(self, node: Gateway) -> None:
        self.url = (node.data_dir / "admin.url").read_text().strip()
        self.token = str(node.data_dir / "admin.token")


@pytest.fixture
def address(node: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Address:
    """Return where the node is, with the working directory elsewhere."""
    monkeypatch.chdir(tmp_path)
    return Address(node)


def test_options_name_the_node(run: Run, address: Address) -> None:
    where = ("--url", address.url, "--token-file", address.token)
    assert run("topics", "create", "far", *where).status == 0
    assert [one["name"] for one in run("topics", "ls", "--json", *where).json] == ["far"]


def test_the_environment_names_the_node(
    run: Run, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_URL", address.url)
    monkeypatch.setenv("HEADGATE_TOKEN_FILE", address.token)
    assert run("queues", "ls", "--json").json == []


def test_the_token_of_this_machine_is_not_sent_elsewhere(
    run: Run, address: Address, node: Gateway
) -> None:
    data = ("--set", f"node.data_dir={node.data_dir}")
    refused = run("topics", "ls", "--url", address.url, *data)
    assert (refused.status, refused.out) == (1, "")
    assert "--token-file FILE or HEADGATE_TOKEN_FILE" in refused.err


def test_a_wrong_token_is_refused(run: Run, address: Address, tmp_path: Path) -> None:
    other = tmp_path / "other.token"
    other.write_text("not it\n")
    refused = run("topics", "ls", "--url", address.url, "--token-file", str(other))
    assert refused.status == 1
    assert refused.err.startswith("headgate: Unauthenticated: ")


@pytest.mark.parametrize("url", ["broker:9644", "ftp://broker", "http://", "nonsense"])
def test_what_is_no_url_is_said_to_be_none(run: Run, url: str, tmp_path: Path) -> None:
    refused = run("topics", "ls", "--url", url, "--token-file", str(tmp_path))
    assert refused.status == 1
    assert "is no address like http://" in refused.err


def test_an_empty_token_file_is_refused(run: Run, address: Address, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    refused = run("topics", "ls", "--url", address.url, "--token-file", str(tmp_path / "empty"))
    assert (refused.status, "holds no token" in refused.err) == (1, True)


def test_the_defaults_are_those_of_the_settings() -> None:
    """Commands do not load the settings, and so have the two defaults beside them."""
    assert (Settings().node.data_dir, Settings().admin.bind) == (Path(_DATA_DIR), _BIND)
