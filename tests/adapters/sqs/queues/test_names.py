"""Legal names of queues."""

import pytest

from adapters.sqs.errors import INVALID_PARAMETER_VALUE, SqsError
from adapters.sqs.queues.names import check_queue_name, is_fifo_name


@pytest.mark.parametrize("name", ["a", "-", "_", "Orders-2_b", "x" * 80])
def test_a_name_has_1_to_80_letters_digits_hyphens_and_underscores(name: str) -> None:
    check_queue_name(name, fifo=False)


@pytest.mark.parametrize(
    "name", ["", "x" * 81, "a.b", "a b", "a/b", "é", "a\n", "orders.fifo", "a:b"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(SqsError, match="1 to 80 in length") as refused:
        check_queue_name(name, fifo=False)
    assert refused.value.code is INVALID_PARAMETER_VALUE


@pytest.mark.parametrize("name", ["a.fifo", "x" * 75 + ".fifo"])
def test_the_name_of_a_fifo_queue_ends_in_fifo_which_counts(name: str) -> None:
    check_queue_name(name, fifo=True)
    assert is_fifo_name(name)


@pytest.mark.parametrize(
    "name", ["orders", ".fifo", "x" * 76 + ".fifo", "a.b.fifo", "a.FIFO", "a.fifo\n"]
)
def test_other_names_of_fifo_queues_are_refused(name: str) -> None:
    with pytest.raises(SqsError, match=r"must end with \.fifo suffix"):
        check_queue_name(name, fifo=True)
