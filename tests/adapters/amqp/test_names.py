"""Names of queues as names of topics: legal, different for different names, always the same."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.names import to_namespace, to_topic_name, to_vhost
from gateway.model import check_topic_name


@given(st.text(min_size=1, max_size=255))
def test_any_name_has_a_legal_topic(name: str) -> None:
    topic = to_topic_name("default", name)
    check_topic_name(topic.name)
    assert to_topic_name("default", name) == topic


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_different_names_have_different_topics(one: str, other: str) -> None:
    same = to_topic_name("default", one) == to_topic_name("default", other)
    assert same == (one == other)


@given(st.text(min_size=1, max_size=40))
def test_a_vhost_comes_back(vhost: str) -> None:
    if vhost != "default":
        assert to_vhost(to_namespace(vhost)) == vhost
