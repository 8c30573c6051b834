"""Digests of recorded answers of Amazon SQS, and of its published rule."""

import hashlib
import string

from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.message_attributes import MessageAttribute
from adapters.sqs.messages.md5 import md5_of_attributes, md5_of_body

NAMES = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=12)
TEXTS = st.text(min_size=1, max_size=12).map(lambda text: text.encode())
ATTRIBUTES = st.one_of(
    st.builds(MessageAttribute, st.just("String"), TEXTS),
    st.builds(MessageAttribute, st.just("Number"), st.integers().map(lambda n: b"%d" % n)),
    st.builds(MessageAttribute, st.just("Binary"), st.binary(min_size=1, max_size=12)),
    st.builds(MessageAttribute, st.just("String.custom"), TEXTS),
)


def text(value: str) -> MessageAttribute:
    return MessageAttribute("String", value.encode())


def test_body_is_digested_as_amazon_does() -> None:
    assert md5_of_body(b"message-body-1") == "19c9e282d65f9733bc6b35d50062c7ee"


def test_one_text_is_digested_as_amazon_does() -> None:
    digest = md5_of_attributes({"Hello": text("There")})

    assert digest == "a311262e065454b75da111d535b8dacd"


def test_attributes_are_digested_in_order_of_their_names_as_amazon_does() -> None:
    attributes = {"Help.Me": text("Me"), "Hello": text("There"), "General": text("Kenobi")}

    assert md5_of_attributes(attributes) == "4c360f3fdafd970e05fae2f149d997f5"


def test_binary_is_digested_as_amazon_does() -> None:
    value = b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"

    digest = md5_of_attributes({"attr1": MessageAttribute("Binary", value)})

    assert digest == "8cbe4db156db8a94db8b801b7addb984"


@given(st.dictionaries(NAMES, ATTRIBUTES, min_size=1, max_size=10))
def test_any_attributes_are_digested_by_the_published_rule(
    attributes: dict[str, MessageAttribute],
) -> None:
    reckoned = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        for data in (name.encode(), attribute.data_type.encode()):
            reckoned.update(len(data).to_bytes(4, "big") + data)
        reckoned.update(b"\2" if attribute.data_type.startswith("Binary") else b"\1")
        reckoned.update(len(attribute.value).to_bytes(4, "big") + attribute.value)

    assert md5_of_attributes(attributes) == reckoned.hexdigest()
