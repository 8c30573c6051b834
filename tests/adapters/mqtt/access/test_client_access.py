"""Rules: first match, placeholders, and subscriptions that must not reach around a denial."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt.access.client_access import Access, ClientAccess, log_topics
from adapters.mqtt.access.rule_filters import covers, overlaps
from adapters.mqtt.config import MqttConfig
from adapters.mqtt.errors import ReasonCode
from adapters.mqtt.rule_types import FILTER, MQTT_TOPIC
from adapters.mqtt.subscriptions.filters import matches
from gateway.auth.ports import (
    ANONYMOUS,
    Operation,
    Principal,
    ResourceType,
    Rule,
    Verdict,
    check_rule,
)

LEVELS = st.sampled_from(["a", "b", "", "$c", "+"])
FILTERS = (
    st.lists(LEVELS, min_size=1, max_size=4)
    .flatmap(lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"]), "#"]))
    .filter(bool)
)
TOPICS = (
    st.lists(st.sampled_from(["a", "b", "", "$c"]), min_size=1, max_size=5)
    .map("/".join)
    .filter(bool)
)


class Rules:
    """An ``Authorizer`` that denies what it is told to, and counts questions."""

    def __init__(self, *denied: tuple[Operation, str]) -> None:
        self.revision = 1
        self.filter_rules: list[Rule] = []
        self.after_change: list[Callable[[], Awaitable[None]]] = []
        self.super_users: set[str] = set()
        self.denied = set(denied)
        self.asked = 0
        self.default = True
        self.allows_topics = True

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        self.asked += 1
        assert principal.protocol == "mqtt"
        assert resource_type is ResourceType.TOPIC
        return self.allows_topics and (operation, name) not in self.denied

    def has_rule(self, _resource_type: ResourceType, name: str) -> bool:
        return any(name == denied for _, denied in self.denied)

    def allows_by_default(self, _principal: Principal) -> bool:
        return self.default

    def verdict(self, *_question: object, **_how: object) -> Verdict:
        raise AssertionError("SQS asks this")

    def is_super_user(self, principal: Principal) -> bool:
        return principal.name in self.super_users

    def store(self, *rules: Rule) -> None:
        self.filter_rules = [check_rule(rule) for rule in rules]
        self.revision += 1


def client(
    *rules: dict[str, str],
    default: str | None = "deny",
    client_id: str = "dev1",
    username: str | None = "ada",
    authorizer: Rules | None = None,
    **config: Any,
) -> ClientAccess:
    settings = MqttConfig.model_validate({"acl": rules, "acl_default": default, **config})
    access = Access(settings, authorizer or Rules(), lambda _topic, _qos: "mqtt")
    principal = Principal(username or ANONYMOUS, "mqtt", "127.0.0.1")
    return access.of_client(client_id, username, principal)


def allow(topic_filter: str, **rule: str) -> dict[str, str]:
    return {"effect": "allow", "filter": topic_filter, **rule}


def deny(topic_filter: str, **rule: str) -> dict[str, str]:
    return {"effect": "deny", "filter": topic_filter, **rule}


def may_publish(access: ClientAccess, topic: str) -> bool:
    return access.publish_refusal(topic.encode(), 1) is None


@given(
    st.lists(TOPICS, min_size=1, max_size=5),
    st.sampled_from([(), (deny("a/#"),), (allow("a/#"), allow("b/#", client="dev2"))]),
    st.sampled_from(["allow", "deny"]),
    st.sampled_from([2, 3, 50]),
    st.sampled_from([(), ("super",), ("denied",), ("super", "denied")]),
)
def test_all_may_be_published_to_when_each_may(
    topics: list[str],
    rules: tuple[dict[str, str], ...],
    default: str,
    levels_max: int,
    authorized: tuple[str, ...],
) -> None:
    authorizer = Rules(*([(Operation.WRITE, "mqtt")] if "denied" in authorized else []))
    authorizer.super_users = {"ada"} if "super" in authorized else set()
    access = client(*rules, default=default, authorizer=authorizer, topic_levels_max=levels_max)
    data = [topic.encode() for topic in topics]

    may_all = access.rules_allow_all(data, 1) and access.may_write(["mqtt"])

    assert may_all == all(may_publish(access, topic) for topic in topics)


@pytest.mark.parametrize("topic", ["$delayed/60/a", "$SYS/a"])
def test_topics_of_the_server_are_not_published_to_together(topic: str) -> None:
    assert not client(default="allow").rules_allow_all([b"a", topic.encode()], 1)


@given(FILTERS, FILTERS, TOPICS)
def test_what_a_covered_filter_matches_the_covering_one_matches(
    rule: str, wanted: str, topic: str
) -> None:
    if covers(rule.split("/"), wanted.split("/")) and matches(wanted, topic):
        assert matches(rule, topic)


@given(FILTERS, FILTERS, TOPICS)
def test_filters_that_match_one_topic_overlap(one: str, other: str, topic: str) -> None:
    if matches(one, topic) and matches(other, topic):
        assert overlaps(one.split("/"), other.split("/"))


@pytest.mark.parametrize(
    ("rule", "wanted"), [("#", "$SYS/#"), ("+/a", "$SYS/a"), ("a", "a/#"), ("+", "#")]
)
def test_a_rule_does_not_cover_more_than_it_matches(rule: str, wanted: str) -> None:
    assert not covers(rule.split("/"), wanted.split("/"))


def test_the_first_rule_that_matches_decides() -> None:
    access = client(deny("a/secret"), allow("a/#"), deny("#"), default="allow")
    assert [may_publish(access, topic) for topic in ("a/secret", "a/x", "b")] == [
        False, True, False,
    ]  # fmt: skip


def test_rules_are_for_an_action_a_user_and_a_client() -> None:
    access = client(
        allow("p", action="publish"),
        allow("s", action="subscribe"),
        allow("u", user="ada"),
        allow("v", user="bob"),
        allow("c", client="dev1"),
        allow("d", client="dev2"),
    )
    assert [may_publish(access, topic) for topic in "psuvcd"] == [
        True, False, True, False, True, False,
    ]  # fmt: skip
    assert [access.may_subscribe(topic) for topic in "ps"] == [False, True]


def test_nobody_reads_through_a_wildcard_what_is_denied_to_him() -> None:
    access = client(deny("secret/#"), allow("#"))
    assert [access.may_subscribe(text) for text in ("#", "+/x", "secret", "open/#")] == [
        False, False, False, True,
    ]  # fmt: skip


def test_a_subscription_is_allowed_only_as_a_whole() -> None:
    access = client(allow("a/+"))
    assert [access.may_subscribe(text) for text in ("a/b", "a/+", "a/#", "#")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_placeholders_are_the_clients_own_names() -> None:
    access = client(allow("of/%u/%c/#"), allow("box-%c"))
    assert may_publish(access, "of/ada/dev1/x")
    assert may_publish(access, "box-dev1")
    assert not may_publish(access, "of/ada/dev2/x")


@pytest.mark.parametrize("client_id", ["+", "#", "a/b", "$SYS", "", "%u+"])
def test_a_client_identifier_never_widens_what_is_allowed(client_id: str) -> None:
    access = client(allow("%c/#"), allow("x/%c/#"), client_id=client_id)
    for text in ("x/+/y", "x/dev2/y", "+/#", "#", "$SYS/#", "x/a/b/c"):
        assert not access.may_subscribe(text), text
    assert not may_publish(access, "x/a/b")


@pytest.mark.parametrize("client_id", ["+", "a/b", ""])
def test_a_client_identifier_never_narrows_what_is_denied(client_id: str) -> None:
    access = client(deny("x/%c/#"), allow("#"), client_id=client_id)
    assert not may_publish(access, "x/anybody/y")


def test_a_name_may_look_like_a_placeholder() -> None:
    access = client(allow("%c/x"), client_id="%u", username="ada")
    assert may_publish(access, "%u/x")
    assert not may_publish(access, "ada/x")


def test_who_was_not_asked_has_no_user_name() -> None:
    access = client(allow("%u/x"), allow("a", user="ada"), username=None)
    assert not may_publish(access, "a")
    assert not access.may_subscribe("+/x")


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("$SYS/x", ReasonCode.TOPIC_NAME_INVALID),
        ("$delayed/1", ReasonCode.TOPIC_NAME_INVALID),
        ("$delayed/1/", ReasonCode.TOPIC_NAME_INVALID),
        ("$delayed/1s/a", ReasonCode.TOPIC_NAME_INVALID),
        ("$delayed/-1/a", ReasonCode.TOPIC_NAME_INVALID),
        ("$delayed/12345678901/a", ReasonCode.TOPIC_NAME_INVALID),
        ("$delayed/1/$SYS/a", ReasonCode.TOPIC_NAME_INVALID),
        ("$delayed/1/$delayed/1/a", ReasonCode.TOPIC_NAME_INVALID),
        ("$delayed/1/a/+", ReasonCode.TOPIC_NAME_INVALID),
        ("1/2/3/4", ReasonCode.TOPIC_NAME_INVALID),
    ],
)
def test_some_topics_are_for_nobody(topic: str, code: ReasonCode) -> None:
    refusal = client(default="allow", topic_levels_max=3).publish_refusal(topic.encode(), 0)
    assert refusal is not None
    assert refusal.reason_code is code


def test_who_may_publish_to_a_topic_may_do_so_later() -> None:
    access = client(allow("a/#"))
    assert may_publish(access, "$delayed/5/a/b")
    assert not may_publish(access, "$delayed/5/b")


def test_answers_are_kept_until_the_rules_change() -> None:
    rules = Rules()
    access = client(default=None, authorizer=rules)
    assert may_publish(access, "a")
    assert may_publish(access, "a")
    assert rules.asked == 1
    rules.denied.add((Operation.WRITE, "mqtt"))
    assert may_publish(access, "a")
    rules.revision += 1
    assert not may_publish(access, "a")


def test_a_subscription_needs_every_topic_of_the_log_that_it_may_read() -> None:
    routes = [
        {"filter": "s/#", "topic": "sensors", "qos0_topic": "sensors0"},
        {"filter": "b/+", "topic": "boxes"},
    ]
    config = MqttConfig.model_validate({"routes": routes})
    assert log_topics(config, ["s", "+"]) == ["sensors", "sensors0"]
    assert log_topics(config, ["+", "x"]) == ["sensors", "sensors0", "boxes", "mqtt"]
    assert log_topics(config, ["$SYS", "#"]) == []
    rules = Rules((Operation.READ, "sensors0"))
    access = client(default="allow", authorizer=rules, routes=routes)
    assert [access.may_subscribe(text) for text in ("s/x", "b/x", "#")] == [False, True, False]


@pytest.mark.parametrize("default", ["allow", None])
def test_a_rule_for_the_topic_of_the_log_holds_beside_an_open_default(
    default: str | None,
) -> None:
    access = client(default=default, authorizer=Rules((Operation.WRITE, "mqtt")))
    assert not may_publish(access, "a")
    assert access.may_subscribe("a")


def test_an_explicit_allow_needs_no_allow_for_the_topic_of_the_log() -> None:
    rules = Rules()
    rules.allows_topics = False  # what no rule is about is denied
    access = client(allow("a/#"), default=None, authorizer=rules)
    open_to_all = client(default="allow", authorizer=rules)
    assert [may_publish(access, topic) for topic in ("a/x", "b")] == [True, False]
    assert [access.may_subscribe(text) for text in ("a/+", "#")] == [True, False]
    assert may_publish(open_to_all, "b")
    assert open_to_all.may_subscribe("#")


def test_the_servers_own_topics_follow_the_default_where_no_rule_is_about_them() -> None:
    rules = Rules()
    access = client(default=None, authorizer=rules)
    before = access.may_subscribe("$SYS/#")
    rules.default = False
    assert before
    assert not access.may_subscribe("$SYS/#")


# --- rules that the gateway keeps


def stored(topic_filter: str, operation: Operation = Operation.ALL, **more: Any) -> Rule:
    principal = more.pop("principal", "*")
    kind, pattern = MQTT_TOPIC, FILTER
    return Rule(principal, operation, kind, pattern, topic_filter, **more)


def keeping(*rules: Rule) -> Rules:
    authorizer = Rules()
    authorizer.store(*rules)
    return authorizer


def test_stored_rules_are_for_an_operation_a_user_a_client_and_a_host() -> None:
    authorizer = keeping(
        stored("p", Operation.WRITE),
        stored("s", Operation.READ),
        stored("u", principal="ada"),
        stored("v", principal="bob"),
        stored("c", client="dev1"),
        stored("d", client="dev2"),
        stored("b", principal="ada", client="dev1"),
        stored("n", principal="bob", client="dev1"),
        stored("h", host="127.0.0.1"),
        stored("i", host="10.0.0.1"),
    )
    access = client(authorizer=authorizer)
    assert [topic for topic in "psuvcdbnhi" if may_publish(access, topic)] == list("pucbh")
    assert [topic for topic in "ps" if access.may_subscribe(topic)] == ["s"]


def test_a_stored_denial_wins_whatever_else_allows() -> None:
    authorizer = keeping(stored("a/b", allow=False), stored("a/#"))
    access = client(allow("#"), default="allow", authorizer=authorizer)
    assert [may_publish(access, topic) for topic in ("a/b", "a/c")] == [False, True]
    assert [access.may_subscribe(text) for text in ("a/b", "a/+", "#", "a/c")] == [
        False, False, False, True,
    ]  # fmt: skip


def test_the_config_decides_before_a_stored_allowance_and_that_before_the_default() -> None:
    authorizer = keeping(stored("a/#"))
    access = client(deny("a/b"), authorizer=authorizer)
    assert [may_publish(access, topic) for topic in ("a/b", "a/c", "b")] == [False, True, False]
    assert [access.may_subscribe(text) for text in ("a/#", "a/c", "#")] == [False, True, False]


def test_placeholders_of_stored_rules_are_the_clients_own_names() -> None:
    access = client(authorizer=keeping(stored("of/%u/%c/#"), stored("box-%c")))
    assert may_publish(access, "of/ada/dev1/x")
    assert access.may_subscribe("of/ada/dev1/#")
    assert may_publish(access, "box-dev1")
    assert not may_publish(access, "of/ada/dev2/x")
    assert not access.may_subscribe("of/ada/+/#")


@pytest.mark.parametrize("client_id", ["+", "#", "a/b", "$SYS", "", "%u+"])
def test_a_client_identifier_neither_widens_nor_narrows_a_stored_rule(client_id: str) -> None:
    authorizer = keeping(stored("x/%c/#"), stored("y/%c/#", allow=False))
    access = client(allow("y/#"), client_id=client_id, authorizer=authorizer)
    for text in ("x/+/y", "x/dev2/y", "#", "x/a/b/c"):
        assert not access.may_subscribe(text), text
    assert not may_publish(access, "x/a/b")
    assert not may_publish(access, "y/anybody/x")


def test_who_was_not_asked_is_anonymous_to_stored_rules() -> None:
    authorizer = keeping(
        stored("%u/x"), stored("a", principal="ada"), stored("b", principal="ANONYMOUS")
    )
    access = client(username=None, authorizer=authorizer)
    assert [may_publish(access, topic) for topic in ("/x", "a", "b")] == [False, False, True]


def test_super_users_may_do_what_every_rule_denies() -> None:
    authorizer = keeping(stored("#", allow=False))
    authorizer.super_users = {"ada"}
    access = client(deny("#"), authorizer=authorizer)
    assert may_publish(access, "a")
    assert access.may_subscribe("#")
    other = client(deny("#"), authorizer=authorizer, username="bob")
    assert not may_publish(other, "a")


def test_a_stored_rule_holds_from_its_revision_on() -> None:
    authorizer = keeping()
    access = client(default="allow", authorizer=authorizer)
    other = client(default="allow", authorizer=authorizer, client_id="dev2")
    seen = [(may_publish(access, "a"), access.may_subscribe("a"), may_publish(other, "a"))]
    for rules in ((stored("a", client="dev1", allow=False),), ()):
        authorizer.store(*rules)
        seen.append(
            (may_publish(access, "a"), access.may_subscribe("a"), may_publish(other, "a"))
        )
    assert seen == [(True, True, True), (False, False, True), (True, True, True)]


def test_the_answer_about_a_topic_is_looked_up_once() -> None:
    authorizer = keeping(stored("a"))
    access = client(authorizer=authorizer)
    assert may_publish(access, "a")
    authorizer.filter_rules = []  # of which nobody is told: no revision
    assert may_publish(access, "a")


def test_rules_that_mean_the_same_for_all_are_kept_once() -> None:
    authorizer = keeping(stored("a/#"), stored("b/#"))
    access = Access(MqttConfig(), authorizer, lambda _topic, _qos: "mqtt")
    clients = [
        access.stored.of_client(name, None, Principal(ANONYMOUS, "mqtt", "")) for name in "ab"
    ]
    assert clients[0][0] is clients[1][0]


@given(
    st.lists(st.tuples(FILTERS, st.booleans()), max_size=4),
    FILTERS,
    TOPICS,
)
def test_nobody_may_subscribe_to_what_stored_rules_deny_to_his_publishing(
    rules: list[tuple[str, bool]], wanted: str, topic: str
) -> None:
    authorizer = keeping(*(stored(text, allow=allows) for text, allows in rules))
    access = client(authorizer=authorizer)
    is_open = not topic.startswith("$")  # nobody publishes there
    if is_open and access.may_subscribe(wanted) and matches(wanted, topic):
        assert may_publish(access, topic)


def test_the_will_of_who_did_not_log_in_is_refused_once_login_is_required() -> None:
    authorizer = Rules()
    access = client(default="allow", username=None, authorizer=authorizer)
    assert access.publish_refusal(b"a", 1) is None
    authorizer.default = False
    authorizer.revision += 1
    refusal = access.publish_refusal(b"a", 1)
    assert refusal is not None
    assert refusal.reason_code is ReasonCode.NOT_AUTHORIZED
