"""Rules that `headgate rules` adds and removes while paho clients are connected."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from tests.interop.mqtt.programs.link import V3_1_1, V5
from tests.interop.mqtt.programs.secure_paho import SecurePaho
from tests.interop.mqtt.secured import add_user
from tests.support.gateway import Gateway
from tests.support.mqtt_target import OWN, Target, gateway_target

pytestmark = [
    OWN,
    pytest.mark.interop,
    pytest.mark.xdist_group("mqtt-rules"),
    # Sockets that paho leaves to the garbage collector are its own affair.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ALICE, BOB, ROOT = ("alice", "wonderland"), ("bob", "builder"), ("root", "toor")
DENIED = "Not authorized"
GRANTED = "Granted QoS 1"
SESSION_S = 60
WITH_WILL = ReasonCode(PacketTypes.DISCONNECT, "Disconnect with will message")
VERSIONS = pytest.mark.parametrize("version", [V3_1_1, V5], ids=["3.1.1", "5.0"])


class GatewayWithRules:
    """A gateway that allows nothing but what rules do, and its command."""

    def __init__(self, gateway: Gateway, target: Target) -> None:
        self.gateway = gateway
        self.target = target

    def client(
        self, client_id: str, user: tuple[str, str] | None = ALICE, version: int = V5
    ) -> SecurePaho:
        return SecurePaho(self.target.port, client_id, version=version, user=user)

    def opened(
        self, client_id: str, user: tuple[str, str] | None = ALICE, version: int = V5
    ) -> SecurePaho:
        client = self.client(client_id, user, version)
        assert client.open() == "Success"
        return client

    def rule(self, verb: str, *words: str) -> None:
        """Run ``headgate rules add`` or ``rm``; the rule holds, or does not, afterwards."""
        more = ["--yes"] if verb == "rm" else []
        self.gateway.run_command(
            *("rules", verb, *words, *more), f"--set=node.data_dir={self.gateway.data_dir}"
        )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayWithRules]:
    folder = tmp_path_factory.mktemp("ruled")
    for name, password in (ALICE, BOB, ROOT):
        add_user(folder / "data", name, password)
    settings: dict[str, object] = {
        "auth.super_users": '["root"]',
        "adapters.mqtt.acl_default": "deny",
        "adapters.mqtt.acl": '[{effect = "allow", filter = "open/#"}, '
        '{effect = "deny", filter = "shut/#"}]',
    }
    gateway = Gateway(folder / "data", settings)
    with gateway_target(gateway) as target:
        node = GatewayWithRules(gateway, target)
        node.rule("add", "allow", "all", "mqtt_topic", "own/%u/%c/#")
        node.rule("add", "allow", "publish", "mqtt_topic", "in/#", "--user", "alice")
        node.rule("add", "allow", "subscribe", "mqtt_topic", "in/#", "--user", "bob")
        yield node


def test_rules_by_user_and_with_placeholders(node: GatewayWithRules, stem: str) -> None:
    with node.opened(stem) as alice, node.opened(f"{stem}b", BOB) as bob:
        seen = {
            topic: (alice.publish(topic, b"x"), alice.subscribe(topic))
            for topic in (
                f"own/alice/{stem}/x",
                f"own/alice/{stem}b/x",
                f"own/bob/{stem}/x",
                f"in/{stem}",
                f"open/{stem}",
                f"shut/{stem}",
                f"other/{stem}",
            )
        }
        yes, no = ("Success", GRANTED), (DENIED, DENIED)
        assert list(seen.values()) == [yes, no, no, ("Success", DENIED), yes, no, no]
        assert bob.subscribe(f"in/{stem}/#") == GRANTED
        assert bob.subscribe("own/bob/+/x") == DENIED
        assert bob.subscribe("#") == DENIED
        assert alice.publish(f"in/{stem}/a", b"for bob") == "Success"
        assert bob.message() == (f"in/{stem}/a", b"for bob")


def test_super_users_are_bound_by_no_rule(node: GatewayWithRules, stem: str) -> None:
    with node.opened(stem, ROOT) as root:
        assert root.subscribe("#") == GRANTED
        assert root.publish(f"shut/{stem}", b"x") == "Success"


@VERSIONS
def test_a_rule_holds_for_who_is_connected_and_goes_again(
    node: GatewayWithRules, stem: str, version: int
) -> None:
    filter_rule = ("mqtt_topic", f"new/{stem}/#", "--client", stem)
    with node.opened(stem, version=version) as alice, node.opened(f"{stem}r", ROOT) as root:
        assert alice.subscribe(f"open/{stem}") == GRANTED
        node.rule("add", "allow", "all", *filter_rule)
        assert alice.subscribe(f"new/{stem}/#") == GRANTED
        assert alice.publish(f"new/{stem}/a", b"1") == "Success"
        assert alice.message() == (f"new/{stem}/a", b"1")

        node.rule("add", "deny", "subscribe", *filter_rule)
        assert root.publish(f"new/{stem}/a", b"2") == "Success"
        assert root.publish(f"open/{stem}", b"mark") == "Success"
        assert alice.message() == (f"open/{stem}", b"mark")
        assert alice.publish(f"new/{stem}/a", b"3") == "Success"

        node.rule("rm", "deny", "subscribe", *filter_rule)
        assert root.publish(f"new/{stem}/a", b"4") == "Success"
        assert alice.message() == (f"new/{stem}/a", b"4")

        node.rule("rm", "allow", "all", *filter_rule)
        assert alice.subscribe(f"new/{stem}/#") in {DENIED, "Unspecified error"}
        if version == V5:
            assert alice.publish(f"new/{stem}/a", b"5") == DENIED
        assert root.publish(f"open/{stem}", b"mark") == "Success"
        assert alice.message() == (f"open/{stem}", b"mark")


@VERSIONS
def test_an_exact_denial_leaves_wider_subscriptions_and_takes_its_messages_out(
    node: GatewayWithRules, stem: str, version: int
) -> None:  # paho's client_test.py, test_subscribe_failure
    secret, other = f"open/{stem}/nosubscribe", f"open/{stem}/other"
    rule = ("deny", "subscribe", "mqtt_topic", secret, "--eq")
    node.rule("add", *rule)
    with node.opened(stem, version=version) as alice:
        assert alice.subscribe(secret) in {DENIED, "Unspecified error"}
        assert alice.subscribe(f"open/{stem}/+") == GRANTED
        assert alice.publish(secret, b"1") == "Success"
        assert alice.publish(other, b"2") == "Success"
        assert alice.message() == (other, b"2")
        node.rule("rm", *rule)
        assert alice.publish(secret, b"3") == "Success"
        assert alice.message() == (secret, b"3")


def test_what_a_list_in_the_config_allows_a_stored_rule_can_deny(
    node: GatewayWithRules, stem: str
) -> None:
    denial = ("deny", "all", "mqtt_topic", "#", "--client", stem)
    with node.opened(stem) as alice:
        assert alice.publish(f"open/{stem}", b"x") == "Success"
        node.rule("add", *denial)
        assert alice.publish(f"open/{stem}", b"x") == DENIED
        node.rule("rm", *denial)
        node.rule("add", "allow", "all", "mqtt_topic", f"shut/{stem}")
        assert alice.publish(f"open/{stem}", b"x") == "Success"
        assert alice.publish(f"shut/{stem}", b"x") == DENIED


def test_a_will_needs_the_right_when_it_is_set_and_when_it_goes(
    node: GatewayWithRules, stem: str
) -> None:
    topic = f"will/{stem}"
    allowing = ("allow", "publish", "mqtt_topic", topic, "--user", "alice")
    with node.opened(f"{stem}r", ROOT) as root:
        assert root.subscribe(topic) == GRANTED
        with node.client(stem) as alice:
            alice.client.will_set(topic, b"refused", 1)
            assert alice.open() == DENIED
        node.rule("add", *allowing)
        for payload, is_allowed in ((b"gone", True), (b"not allowed any more", False)):
            with node.client(stem) as alice:
                alice.client.will_set(topic, payload, 1)
                assert alice.open() == "Success"
                if not is_allowed:
                    node.rule("rm", *allowing)
                alice.client.disconnect(reasoncode=WITH_WILL)
                alice.client.loop_stop()
            if is_allowed:
                assert root.message() == (topic, payload)
        assert root.publish(topic, b"mark") == "Success"
        assert root.message() == (topic, b"mark")


def test_members_of_a_shared_subscription_have_their_own_rights(
    node: GatewayWithRules, stem: str
) -> None:
    shared = f"$share/g/in/{stem}/#"
    denial = ("deny", "subscribe", "mqtt_topic", f"in/{stem}/#", "--client", f"{stem}b")
    with (
        node.opened(stem) as alice,
        node.opened(f"{stem}b", BOB) as first,
        node.opened(f"{stem}c", BOB) as second,
    ):
        assert alice.subscribe(shared) == DENIED
        assert (first.subscribe(shared), second.subscribe(shared)) == (GRANTED, GRANTED)
        node.rule("add", *denial)
        for number in range(4):
            assert alice.publish(f"in/{stem}/x", b"%d" % number) == "Success"
        assert [second.message()[1] for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        assert first.subscribe(shared) == DENIED


def test_retained_messages_go_to_who_may_read_them(node: GatewayWithRules, stem: str) -> None:
    topic = f"kept/{stem}"
    with node.opened(stem, BOB) as bob, node.opened(f"{stem}r", ROOT) as root:
        bob.client.publish(topic, b"not allowed", 1, retain=True)
        assert bob.answer() == DENIED
        root.client.publish(topic, b"kept", 1, retain=True)
        assert root.answer() == "Success"
        assert bob.subscribe(topic) == DENIED
        node.rule("add", "allow", "subscribe", "mqtt_topic", topic, "--user", "bob")
        assert bob.subscribe(topic) == GRANTED
        assert bob.message() == (topic, b"kept")


def test_delayed_messages_need_the_right_to_their_topic(
    node: GatewayWithRules, stem: str
) -> None:
    topic = f"in/{stem}"
    with node.opened(stem) as alice, node.opened(f"{stem}b", BOB) as bob:
        assert bob.subscribe(topic) == GRANTED
        assert bob.publish(f"$delayed/1/{topic}", b"no") == DENIED
        assert alice.publish(f"$delayed/1/{topic}", b"later") == "Success"
        node.rule("add", "deny", "publish", "mqtt_topic", topic, "--client", stem)
        assert alice.publish(f"$delayed/1/{topic}", b"no") == DENIED
        assert bob.message() == (topic, b"later")


def test_rules_and_subscriptions_out_of_force_survive_a_restart(tmp_path: Path) -> None:
    kept = Properties(PacketTypes.CONNECT)
    kept.SessionExpiryInterval = SESSION_S
    gateway = Gateway(tmp_path / "data")
    with gateway_target(gateway) as target:
        node = GatewayWithRules(gateway, target)
        with node.client("reader", None) as reader:
            assert reader.open(clean_start=False, properties=kept) == "Success"
            assert reader.subscribe("a/secret") == GRANTED
            assert reader.subscribe("a/open") == GRANTED
            node.rule("add", "deny", "subscribe", "mqtt_topic", "a/secret")

    gateway = Gateway(tmp_path / "data")
    with gateway_target(gateway) as target:
        node = GatewayWithRules(gateway, target)
        with node.client("reader", None) as reader, node.opened("p", None) as publisher:
            assert reader.open(clean_start=False, properties=kept) == "Success"
            for topic in ("a/secret", "a/open"):
                assert publisher.publish(topic, b"1") == "Success"
            assert reader.message() == ("a/open", b"1")
            node.rule("rm", "deny", "subscribe", "mqtt_topic", "a/secret")
            assert publisher.publish("a/secret", b"2") == "Success"
            assert reader.message() == ("a/secret", b"2")
