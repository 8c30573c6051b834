"""Plans: what is missing is made, what differs is changed, nothing is deleted unless named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.deployment.document import Document
from gateway.deployment.plan import Action, plan

NAMES = st.sampled_from(["a", "b", "c"])


def document(**tables: object) -> Document:
    return Document.model_validate(tables)


def shown(there: Document, wanted: Document, *, enforces: bool = True) -> list[tuple[str, ...]]:
    """Return changes as their action, kind, name and details."""
    changes = plan(there, wanted, enforces=enforces)
    return [(one.action.value, one.kind, one.name, *one.details) for one in changes]


@st.composite
def documents(draw: st.DrawFn) -> Document:
    topics = draw(
        st.dictionaries(NAMES, st.tuples(st.integers(1, 3), st.sampled_from(["1", "2"])))
    )
    queues = draw(st.dictionaries(NAMES, st.integers(1, 5)))
    return document(
        topics=[
            {"name": name, "partitions": count, "configs": {"retention.ms": value}}
            for name, (count, value) in topics.items()
        ],
        queues=[{"name": name, "attempts_max": count} for name, count in queues.items()],
        exchanges=[{"name": name} for name in draw(st.sets(NAMES))],
    )


def things(of: Document) -> set[tuple[str, str]]:
    return {
        *(("topic", one.name) for one in of.topics),
        *(("queue", one.name) for one in of.queues),
        *(("exchange", one.name) for one in of.exchanges),
    }


@given(documents())
def test_a_document_beside_itself_changes_nothing(one: Document) -> None:
    assert plan(one, one, enforces=True) == []


@given(documents(), documents())
def test_nothing_is_deleted_that_is_not_named(there: Document, wanted: Document) -> None:
    changes = plan(there, wanted, enforces=True)
    assert not any(one.action is Action.DELETE for one in changes)
    assert {(one.kind, one.name) for one in changes} <= things(wanted)


@given(documents(), documents())
def test_create_changes_nothing_that_is_there(there: Document, wanted: Document) -> None:
    for one in plan(there, wanted, enforces=False):
        assert one.action is Action.CREATE
        assert (one.kind, one.name) not in things(there)


def test_what_an_entry_does_not_set_stays() -> None:
    there = document(
        topics=[
            {"name": "t", "partitions": 3, "configs": {"retention.ms": "5", "segment.ms": "7"}}
        ],
        queues=[{"name": "q", "lease_ms": 9, "attempts_max": 4}],
    )
    wanted = document(
        topics=[{"name": "t", "configs": {"retention.ms": "6"}}],
        queues=[{"name": "q", "lease_ms": 8}],
    )
    assert shown(there, wanted) == [
        ("alter", "topic", "t", "retention.ms 5 to 6"),
        ("alter", "queue", "q", "lease_ms 9 to 8"),
    ]


def test_an_empty_value_is_the_default() -> None:
    there = document(topics=[{"name": "t", "configs": {"retention.ms": "5"}}])
    wanted = document(topics=[{"name": "t", "configs": {"retention.ms": "", "segment.ms": ""}}])
    assert shown(there, wanted) == [("alter", "topic", "t", "retention.ms 5 to default")]


@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_partitions_grow_and_do_not_shrink(kind: str) -> None:
    one, three = ({f"{kind}s": [{"name": "x", "partitions": count}]} for count in (1, 3))
    assert shown(document(**one), document(**three)) == [
        ("alter", kind, "x", "partitions 1 to 3")
    ]
    assert shown(document(**three), document(**one)) == [
        ("conflict", kind, "x", "partitions 3 to 1", "a topic keeps its partitions")
    ]


def test_another_type_of_exchange_is_a_conflict() -> None:
    there = document(exchanges=[{"name": "e", "type": "direct"}])
    wanted = document(exchanges=[{"name": "e", "type": "fanout"}])
    ((action, *_),) = shown(there, wanted)
    assert action == "conflict"


def test_an_exchange_gets_another_alternate_and_keeps_flags_that_are_not_set() -> None:
    there = document(exchanges=[{"name": "e", "type": "fanout", "auto_delete": True}])
    wanted = document(exchanges=[{"name": "e", "type": "fanout", "alternate": "rest"}])
    assert shown(there, wanted) == [("alter", "exchange", "e", "alternate none to rest")]


def test_quotas_that_differ_are_set_and_others_stay() -> None:
    there = document(quotas=[{"user": "ada", "producer_byte_rate": 5}])
    wanted = document(
        quotas=[
            {"user": "ada", "consumer_byte_rate": 7},
            {"client_id": "<default>", "producer_byte_rate": 9},
        ]
    )
    assert shown(there, wanted) == [
        ("alter", "quota", "user ada", "consumer_byte_rate none to 7"),
        ("create", "quota", "client_id <default>", "producer_byte_rate none to 9"),
    ]


def test_what_is_named_is_deleted_if_it_is_there() -> None:
    there = document(
        topics=[{"name": "t"}, {"name": "q"}],
        queues=[{"name": "q", "owns_topic": True}],
        users=[{"name": "u"}],
    )
    wanted = document(
        delete={
            "topics": ["t", "gone", "q"],
            "queues": ["q"],
            "users": ["u"],
            "exchanges": ["x"],
        }
    )
    assert shown(there, wanted) == [
        ("delete", "queue", "q"),  # its topic goes with it
        ("delete", "topic", "t"),
        ("delete", "user", "u"),
    ]


def test_a_queue_that_made_its_topic_comes_before_the_topics_configs() -> None:
    wanted = document(
        topics=[{"name": "q", "configs": {"retention.ms": "5"}}],
        queues=[{"name": "q", "owns_topic": True, "dead_letter_topic": "q-dead"}],
    )
    assert [change[:3] for change in shown(Document(), wanted)] == [
        ("create", "queue", "q"),
        ("create", "topic", "q"),
        ("create", "queue", "q-dead"),
    ]


def test_a_user_without_a_secret_cannot_be_made() -> None:
    wanted = document(users=[{"name": "u", "administrator": True}])
    ((action, kind, name, *_),) = shown(Document(), wanted)
    assert (action, kind, name) == ("conflict", "user", "u")
    assert shown(document(users=[{"name": "u", "administrator": True}]), wanted) == []


def test_rules_and_bindings_are_told_by_all_their_fields() -> None:
    rule = {"effect": "allow", "operation": "read", "resource": "topic", "pattern": "any"}
    binding = {"source": "e", "topic": "t", "routing_key": "k", "arguments": {"x": 1}}
    there = document(bindings=[binding], auth={"rules": [rule]})
    wanted = document(
        bindings=[binding, {**binding, "arguments": {"x": "1"}}],
        auth={"rules": [rule, {**rule, "host": "10.0.0.1"}]},
    )
    assert [change[:2] for change in shown(there, wanted)] == [
        ("create", "binding"),
        ("create", "rule"),
    ]
