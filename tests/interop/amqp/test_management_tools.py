"""Stock tools of RabbitMQ's HTTP API: rabbitmqadmin and rabbit-hole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.amqp_target import AmqpTarget
from tests.support.amqp_toolchain import rabbithole_program, rabbitmqadmin_program

WITHIN_S = 120


class Admin:
    """rabbitmqadmin, run as it is for each call."""

    def __init__(self, target: AmqpTarget, home: Path) -> None:
        self._command = [
            sys.executable,
            str(rabbitmqadmin_program()),
            "--host=127.0.0.1",
            f"--port={target.management_port}",
            "--format=raw_json",
        ]
        self._home = home

    def run(self, *arguments: str, typed: str = "", status: int = 0) -> str:
        """Return what a call prints."""
        found = subprocess.run(
            [*self._command, *arguments],
            input=typed,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            env={"HOME": str(self._home)},
        )
        assert found.returncode == status, found.stdout + found.stderr
        return found.stdout + found.stderr

    def rows(self, *arguments: str) -> list[dict[str, object]]:
        """Return the rows that a call lists."""
        found: list[dict[str, object]] = json.loads(self.run(*arguments))
        return found


@pytest.fixture
def admin(target: AmqpTarget, tmp_path: Path) -> Admin:
    return Admin(target, tmp_path)


def test_rabbitmqadmin_moves_a_message(admin: Admin, stem: str) -> None:
    assert "queue declared" in admin.run("declare", "queue", f"name={stem}", "durable=true")
    admin.run("declare", "exchange", f"name={stem}-e", "type=topic")
    admin.run(
        "declare", "binding", f"source={stem}-e", f"destination={stem}", "routing_key=a.#"
    )
    sent = admin.run(
        "publish", f"exchange={stem}-e", "routing_key=a.b", 'properties={"message_id":"m"}',
        typed="hello",
    )  # fmt: skip
    lost = admin.run("publish", f"exchange={stem}-e", "routing_key=z", "payload=lost")
    [message] = admin.rows("get", f"queue={stem}", "ackmode=ack_requeue_false")
    admin.run("purge", "queue", f"name={stem}")
    admin.run(
        "delete", "binding", f"source={stem}-e", "destination_type=queue",
        f"destination={stem}", "properties_key=a.%23",
    )  # fmt: skip
    admin.run("delete", "exchange", f"name={stem}-e")
    admin.run("delete", "queue", f"name={stem}")
    assert "Message published\n" in sent
    assert "NOT routed" in lost
    assert (message["payload"], message["exchange"], message["routing_key"]) == (
        "hello",
        f"{stem}-e",
        "a.b",
    )


@pytest.mark.parametrize(
    "listed",
    [
        "bindings", "channels", "connections", "consumers", "exchanges", "nodes",
        "operator_policies", "parameters", "permissions", "policies", "queues", "users",
        "vhost_limits", "vhosts",
    ],
)  # fmt: skip
def test_rabbitmqadmin_lists_everything(admin: Admin, listed: str) -> None:
    assert isinstance(admin.rows("list", listed), list)


def test_rabbitmqadmin_sets_and_removes(admin: Admin, stem: str) -> None:
    admin.run("declare", "vhost", f"name={stem}")
    vhost = f"--vhost={stem}"
    admin.run("declare", "vhost_limit", f"vhost={stem}", "name=max-queues", "value=5")
    admin.run(
        vhost, "declare", "policy", "name=cap", "pattern=^q", 'definition={"max-length":3}',
        "priority=2", "apply-to=queues",
    )  # fmt: skip
    admin.run(
        vhost,
        "declare",
        "operator_policy",
        "name=op",
        "pattern=",
        'definition={"max-length":2}',
    )
    admin.run(
        vhost, "declare", "queue", "name=q", "durable=true", 'arguments={"x-max-length":9}'
    )
    [queue] = [one for one in admin.rows(vhost, "list", "queues") if one["name"] == "q"]
    refused = admin.run(
        vhost, "declare", "policy", "name=bad", "pattern=^q", 'definition={"nope":3}', status=1
    )
    admin.run(vhost, "delete", "policy", "name=cap")
    admin.run(vhost, "delete", "operator_policy", "name=op")
    admin.run("delete", "vhost_limit", f"vhost={stem}", "name=max-queues")
    admin.run("delete", "vhost", f"name={stem}")
    assert (queue["policy"], queue["operator_policy"]) == ("cap", "op")
    assert queue["effective_policy_definition"] == {"max-length": 2}
    assert "are not recognised policy settings" in refused
    assert "Not found" in admin.run("delete", "vhost", f"name={stem}", status=1)


def test_rabbitmqadmin_exports_what_it_imports(admin: Admin, stem: str, tmp_path: Path) -> None:
    admin.run("declare", "vhost", f"name={stem}")
    given = {
        "queues": [
            {
                "name": "q",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-max-length": 1},
            }
        ],
        "bindings": [
            {
                "source": "amq.topic",
                "destination": "q",
                "destination_type": "queue",
                "routing_key": "a.*",
                "arguments": {},
            }
        ],
    }
    written, read = tmp_path / "in.json", tmp_path / "out.json"
    written.write_text(json.dumps(given))
    admin.run(f"--vhost={stem}", "import", str(written))
    admin.run(f"--vhost={stem}", "export", str(read))
    found = json.loads(read.read_text())
    admin.run("delete", "vhost", f"name={stem}")
    assert {name: found[name] for name in given} == given


def test_rabbit_hole_runs(target: AmqpTarget, stem: str) -> None:
    url = f"http://127.0.0.1:{target.management_port}"
    found = subprocess.run(
        [str(rabbithole_program()), url, stem],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    seen = json.loads(found.stdout)
    missing = seen.pop("missing")
    version = seen.pop("version")
    assert seen == {
        "deleted": True,
        "description": "made by a tool",
        "keys": ["a%2Fb", "a.%2A"],
        "left": 1,
        "location": "a%2Fb/a.%252A",
        "max-length": 5,
        "paged": 1,
        "policy": "cap",
        "running": True,
        "type": "classic",
        "whoami": "guest",
    }
    assert "404" in missing
    assert version.startswith("3.")
