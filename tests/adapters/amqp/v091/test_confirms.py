"""Confirms: each number once, in order, whatever the order in which messages are decided."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.v091.confirms import Confirm, Confirms


def test_one_ack_confirms_all_that_is_durable() -> None:
    confirms = Confirms()
    first, second = confirms.publish(3), confirms.publish(2)
    confirms.decide(second)
    assert confirms.take() == []
    confirms.decide(first)
    assert confirms.take() == [Confirm(5, True, False)]  # noqa: FBT003
    assert confirms.unconfirmed_count == 0


def test_one_message_is_confirmed_alone() -> None:
    confirms = Confirms()
    confirms.decide(confirms.publish(1))
    assert confirms.take() == [Confirm(1, False, False)]  # noqa: FBT003


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_every_number_is_confirmed_once_as_it_was_decided(
    publishes: list[tuple[int, bool]], random: object
) -> None:
    confirms = Confirms()
    pending = [(confirms.publish(count), nack) for count, nack in publishes]
    expected: list[bool] = [nack for count, nack in publishes for _ in range(count)]
    found: list[bool] = []
    random.shuffle(pending)  # type: ignore[attr-defined]
    for one, nack in pending:
        confirms.decide(one, is_nack=nack)
        for tag, multiple, is_nack in confirms.take():
            count = tag - len(found)
            assert count == 1 or multiple
            found += [is_nack] * count
    assert found == expected
