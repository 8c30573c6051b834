"""The commands about a running node, over its real admin endpoint."""

import io
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.gateway import Gateway


@pytest.fixture(autouse=True)
def _of_the_node(node: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the node by its data directory, which the environment may name."""
    for name in [name for name in os.environ if name.startswith("HEADGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADGATE_NODE__DATA_DIR", str(node.data_dir))


def test_the_life_of_a_topic(run: Run) -> None:
    made = run("topics", "create", "orders", "-p", "2", "-c", "retention.ms=1000")
    assert (made.status, made.out) == (0, "created orders with 2 partition(s)\n")
    assert run("topics", "add-partitions", "orders", "3").status == 0
    assert (
        run("topics", "alter", "orders", "-c", "retention.ms=", "-c", "segment.ms=9").status
        == 0
    )
    (listed,) = run("topics", "ls", "--json").json
    assert (listed["name"], listed["partitions"]) == ("orders", 3)
    assert listed["configs_set"] == {"segment.ms": "9"}
    table = run("topics", "ls").out.splitlines()
    assert table[0].split() == ["name", "partitions", "configs", "set"]
    assert table[1].split() == ["orders", "3", "segment.ms=9"]
    described = run("topics", "describe", "orders")
    assert "log start offset" in described.out
    assert len(run("topics", "describe", "orders", "--json").json["partitions"]) == 3
    assert run("topics", "delete", "orders", "--yes").status == 0
    assert run("topics", "ls", "--json").json == []


def test_a_refusal_is_one_line_and_status_1(run: Run) -> None:
    done = run("topics", "create", "a/b")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("headgate: InvalidTopicName: ")
    assert len(done.err.splitlines()) == 1
    assert run("topics", "describe", "nobody").status == 1
    assert run("groups", "describe", "nobody").status == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "create", "x", "-c", "novalue"),
        ("topics", "create", "x", "-p", "0"),
        ("topics", "alter", "x"),
        ("topics", "lss"),
        ("nonsense",),
    ],
)
def test_a_wrong_command_is_status_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).status == 2


def test_offsets_of_a_group_can_be_moved_and_removed(run: Run) -> None:
    assert run("topics", "create", "bills").status == 0
    moved = run("groups", "reset", "billing", "--topic", "bills", "--to", "latest")
    assert moved.status == 0
    assert moved.out.splitlines()[1].split() == ["bills", "0", "0"]
    (group,) = run("groups", "ls", "--json").json
    assert (group["group_id"], group["state"], group["members"]) == ("billing", "Empty", 0)
    (position,) = run("groups", "offsets", "billing", "--json").json
    assert (position["topic"], position["lag"]) == ("bills", 0)
    assert run("groups", "delete", "billing", "-y").status == 0
    assert run("groups", "ls", "--json").json == []


def test_clients_are_listed(run: Run) -> None:
    assert run("clients", "ls", "--json").json == []
    assert run("clients", "ls").status == 0


def test_a_password_comes_from_standard_input(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    first = run("users", "add", "alice", "--password-stdin")
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    second = run("users", "add", "bob", "--password-stdin")
    assert (first.status, second.status) == (0, 0)
    assert first.out.splitlines() == [
        "user alice may log in",
        "alice is an administrator: may do everything, whatever rules say",
        "from now on everybody must log in (auth.required)",
    ]
    assert second.out.splitlines() == ["user bob may log in"]
    assert run("users", "ls").out.split() == [
        "name", "administrator", "origin", "alice", "yes", "store", "bob", "no", "store",
    ]  # fmt: skip
    assert [user["name"] for user in run("users", "ls", "--json").json] == ["alice", "bob"]
    assert run("users", "rm", "alice", "--yes").status == 0
    assert run("users", "rm", "alice", "--yes").status == 1


def test_the_life_of_a_rule(run: Run) -> None:
    for_mqtt = ("deny", "publish", "mqtt_topic", "a/%c/#", "--client", "dev1", "--user", "ada")
    for_topics = ("allow", "read", "topic", "or", "--prefix", "--host", "10.0.0.1")
    for_any = ("allow", "all", "topic", "--user", "ada", "--protocol", "sqs")
    rules = (for_mqtt, for_topics, for_any)
    assert [run("rules", "add", *rule).status for rule in (*rules, for_mqtt)] == [0, 0, 0, 0]
    listed = run("rules", "ls", "--json").json
    assert [tuple(rule.values()) for rule in listed] == [
        ("deny", "publish", "mqtt_topic", "filter", "a/%c/#", "ada", "dev1", "*", "*", "store"),
        ("allow", "read", "topic", "prefix", "or", "*", "*", "*", "10.0.0.1", "store"),
        ("allow", "all", "topic", "any", "", "ada", "*", "sqs", "*", "store"),
    ]
    assert run("rules", "ls").out.splitlines()[1].split()[:5] == [
        "deny", "publish", "mqtt_topic", "filter", "a/%c/#",
    ]  # fmt: skip
    assert run("rules", "rm", *for_mqtt[:-2], "--yes").err == (
        "headgate: RuleNotFound: no such rule\n"
    )
    assert [run("rules", "rm", *rule, "--yes").status for rule in rules] == [0, 0, 0]
    assert run("rules", "ls", "--json").json == []


def test_the_life_of_a_quota(run: Run) -> None:
    who = ("--user", "ada", "--client", "<default>")
    limits = ("producer_byte_rate=1048576", "request_percentage=12.5")
    assert run("quotas", "set", *who, *limits).status == 0
    assert run("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5").status == 0
    assert run("quotas", "set", *who, "request_percentage=").status == 0
    assert [
        (one["user"], one["client_id"], one["ip"], one["limits"], one["source"])
        for one in run("quotas", "ls", "--json").json
    ] == [
        ("ada", "<default>", None, {"producer_byte_rate": 1_048_576.0}, "store"),
        (None, None, "10.0.0.1", {"connection_creation_rate": 5.0}, "store"),
    ]
    assert "producer_byte_rate=1048576" in run("quotas", "list").out
    assert run("quotas", "set", *who, "much").status == 2
    assert run("quotas", "delete", "--user", "ada", "--yes").err == (
        "headgate: QuotaNotFound: user ada has no quotas\n"
    )
    assert run("quotas", "delete", *who, "--yes").status == 0
    assert run("quotas", "rm", "--ip", "10.0.0.1", "--yes").status == 0
    assert run("quotas", "list", "--json").json == []


@pytest.mark.parametrize(
    ("arguments", "status", "hint"),
    [
        (("allow", "publish", "topic", "t"), 1, "publish is what MQTT clients do"),
        (("allow", "describe", "mqtt_topic", "#"), 1, "subscribe (read)"),
        (("allow", "publish", "mqtt_topic", "a#"), 1, "whole level"),
        (("allow", "publish", "mqtt_topic"), 1, "needs a name"),
        (("allow", "read", "topic", "t", "--client", "dev1"), 1, "for MQTT topics"),
        (("allow", "reed", "topic", "t"), 2, ""),
        (("perhaps", "read", "topic", "t"), 2, ""),
    ],
)
def test_a_rule_without_sense_is_refused(
    run: Run, arguments: tuple[str, ...], status: int, hint: str
) -> None:
    refused = run("rules", "add", *arguments)
    assert refused.status == status
    assert hint in refused.err
    assert run("rules", "ls", "--json").json == []


def test_an_access_key_shows_its_secret_once(run: Run) -> None:
    made = run("users", "keys", "add", "carol", "--account", "111122223333", "--json").json
    assert run("users", "keys", "add", "dave").status == 0
    listed = run("users", "keys", "list", "carol", "--json")
    assert listed.json == [
        {
            "key_id": made["key_id"],
            "user": "carol",
            "account": "111122223333",
            "origin": "store",
        }
    ]
    assert made["secret"] not in run("users", "keys", "list").out
    assert run("users", "keys", "list").out.split()[:3] == ["user", "key", "id"]
    assert run("users", "keys", "remove", made["key_id"], "--yes").status == 0
    assert run("users", "keys", "remove", made["key_id"], "--yes").status == 1
    assert run("users", "keys", "list", "carol", "--json").json == []


def test_an_access_key_is_shown_as_clients_read_it(run: Run) -> None:
    lines = run("users", "keys", "add", "erin", "--key-id", "mine").out.splitlines()
    assert lines[0] == "access key of erin; the secret is not shown again"
    assert lines[2] == "  AWS_ACCESS_KEY_ID=mine"
    assert lines[3].startswith("  AWS_SECRET_ACCESS_KEY=")
    again = run("users", "keys", "add", "mallory", "--key-id", "mine")
    assert (again.status, again.out) == (1, "")
    assert again.err.startswith("headgate: AccessKeyExists: ")


def test_a_secret_of_ones_own_comes_from_standard_input(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    made = run("users", "keys", "add", "frank", "--secret-stdin", "--json")
    assert made.json["secret"] == "geheim"


def test_access_keys_go_with_their_user(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    assert run("users", "add", "grace", "--password-stdin").status == 0
    assert run("users", "keys", "add", "grace").status == 0
    assert run("users", "rm", "grace", "--yes").status == 0
    assert run("users", "keys", "list", "grace", "--json").json == []


def test_the_first_access_key_can_be_added_before_the_first_start(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_NODE__DATA_DIR", str(tmp_path / "new"))
    made = run("users", "keys", "add", "alice", "--offline", "--json").json
    with Gateway(tmp_path / "new"):
        (key,) = run("users", "keys", "list", "--json").json
    assert key["key_id"] == made["key_id"]


def test_the_first_user_can_be_added_before_the_first_start(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_NODE__DATA_DIR", str(tmp_path / "new"))
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    assert run("users", "add", "alice", "--password-stdin", "--offline").status == 0
    with Gateway(tmp_path / "new"):
        assert [user["name"] for user in run("users", "ls", "--json").json] == ["alice"]


def test_without_a_node_the_error_says_where_it_looked(run: Run, tmp_path: Path) -> None:
    done = run("topics", "ls", "--set", f"node.data_dir={tmp_path}")
    assert done.status == 1
    assert f"no token in {tmp_path}" in done.err
    assert "headgate serve" in done.err


def test_a_node_that_is_gone_is_said_to_be(run: Run, tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    with gateway:
        assert run("topics", "ls", "--set", f"node.data_dir={tmp_path}").status == 0
    done = run("topics", "ls", "--set", f"node.data_dir={tmp_path}")
    assert done.status == 1
    assert "no node answers at http://127.0.0.1:" in done.err


def test_every_command_has_help(run: Run) -> None:
    running = ("topics", "groups", "queues", "dlq", "clients", "users")
    for command in (*running, "bench", "check-config", "log"):
        assert run(command, "--help").status == 0
    assert "serve" in run("--help").out
