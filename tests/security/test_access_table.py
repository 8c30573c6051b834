"""The whole table of docs/adr/0014, asked of a running gateway by Kafka, MQTT, SQS and admin.

Each topic is also a queue and where an MQTT route leads, so that one rule is about all three.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.security.gateway_with_users import ADMINISTRATOR, ANONYMOUS, GatewayWithUsers

pytestmark = pytest.mark.interop

FREE, NAMED, BEGUN, SHUT = "free", "named", "begins-here", "shut"
COLUMNS: Final = (
    "no rule at all", "rule by name", "rule by prefix", "rule that denies",
    "rules on others", "rule for any", "cluster", "cluster rule",
)  # fmt: skip
# A cell says whether it is allowed, in the order of COLUMNS. ``ada`` is the one whom rules name.
TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    "not required": {
        ANONYMOUS: "y... y.y.",
        "bob": "y... y.y.",
        "ada": "yyy. yyyy",
        ADMINISTRATOR: "yyyy yyyy",
    },
    "required, default allow": {
        ANONYMOUS: ".... ....",
        "bob": "y... y...",
        "ada": "yyy. yy.y",
        ADMINISTRATOR: "yyyy yyyy",
    },
    "required, default deny": {
        ANONYMOUS: ".... ....",
        "bob": ".... ....",
        "ada": ".yy. .y.y",
        ADMINISTRATOR: "yyyy yyyy",
    },
}
SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "not required": {},
    "required, default allow": {"auth.required": "true", "auth.default": "allow"},
    "required, default deny": {"auth.required": "true"},
}


class Asking:
    """Everybody's answers, by protocol and column."""

    def __init__(self, gateway: GatewayWithUsers) -> None:
        self.gateway = gateway
        self.found: dict[tuple[str, str, str], bool] = {}

    def ask(self, column: str, topic: str) -> None:
        """Let everybody write to a topic by each protocol."""
        gateway = self.gateway
        ways: dict[str, Callable[[str, str], bool]] = {
            "kafka": gateway.may_produce,
            "mqtt": gateway.may_publish,
            "sqs": gateway.may_send,
        }
        for protocol, may in ways.items():
            for who in TABLE["not required"]:
                if not self._is_out(protocol, who):
                    self.found[protocol, who, column] = may(who, topic)
                else:
                    self.found[protocol, who, column] = False

    def ask_cluster(self, column: str) -> None:
        """Let everybody do an operation of the cluster, which Kafka alone has."""
        for who in TABLE["not required"]:
            self.found["kafka", who, column] = not self._is_out(
                "kafka", who
            ) and self.gateway.may_administer(who)

    def _is_out(self, protocol: str, who: str) -> bool:
        """A Kafka client that may not come in without a login tries for ever: ask once."""
        return protocol == "kafka" and who == ANONYMOUS and not self.gateway.lets_kafka_in()


@pytest.mark.parametrize("mode", TABLE)
def test_everybody_may_do_what_the_table_says(tmp_path: Path, mode: str) -> None:
    names = (FREE, NAMED, BEGUN, SHUT)
    with GatewayWithUsers(tmp_path / "data", names, SETTINGS[mode]) as gateway:
        asking = Asking(gateway)
        asking.ask("no rule at all", FREE)
        asking.ask_cluster("cluster")
        gateway.rule("allow", "ada", "topic", "literal", NAMED)
        gateway.rule("allow", "ada", "topic", "prefix", "begins-")
        gateway.rule("deny", "*", "topic", "literal", SHUT)
        gateway.rule("allow", "ada", "topic", "literal", SHUT)
        asking.ask("rule by name", NAMED)
        asking.ask("rule by prefix", BEGUN)
        asking.ask("rule that denies", SHUT)
        asking.ask("rules on others", FREE)
        gateway.rule("allow", "ada", "topic", "any", "")
        asking.ask("rule for any", FREE)
        gateway.rule("allow", "ada", "cluster", "any", "")
        asking.ask_cluster("cluster rule")
        admin = [gateway.admin("GET", "users", with_token=known) for known in (True, False)]

    expected = {
        (protocol, who, column): cell == "y"
        for who, cells in TABLE[mode].items()
        for column, cell in zip(COLUMNS, cells.replace(" ", ""), strict=True)
        for protocol in (
            ("kafka",) if column.startswith("cluster") else ("kafka", "mqtt", "sqs")
        )
    }
    wrong = {key: asking.found[key] for key in expected if asking.found[key] != expected[key]}
    assert wrong == {}
    assert asking.found.keys() == expected.keys()
    assert admin == [200, 401]
