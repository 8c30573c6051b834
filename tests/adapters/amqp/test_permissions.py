"""Permissions: every queue that a publish or a dead letter reaches needs write."""

from typing import Final

import pytest

from adapters.amqp.permissions import Access
from adapters.amqp.v091.errors import AmqpFault
from adapters.amqp.v091.fields import Field, Table
from gateway.auth.ports import Operation, Principal, ResourceType, Verdict

DLX: Final = "x-dead-letter-exchange"
KEY: Final = "x-dead-letter-routing-key"


class Rules:
    """Rules that allow what is listed: operation and topic."""

    revision = 1

    def __init__(self, *allowed: tuple[Operation, str]) -> None:
        self._allowed = allowed

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        del principal, resource_type
        return (operation, name) in self._allowed

    def verdict(self, *_question: object) -> Verdict:
        return Verdict.SILENT


def access(*allowed: tuple[Operation, str]) -> Access:
    rules = Rules(*allowed)
    return Access(rules, Principal("bob", "amqp", ""), "default", "/")  # type: ignore[arg-type]


def arguments(**values: str) -> Table:
    names = {"exchange": DLX, "key": KEY}
    return Table((names[name], Field("S", value)) for name, value in values.items())


def test_keys_of_cc_need_write_on_their_queues() -> None:
    own = access((Operation.WRITE, "own"))

    own.check_publish("", ["own"])
    with pytest.raises(AmqpFault, match="write access to queue 'secret'"):
        own.check_publish("", ["own", "secret"])


def test_keys_are_no_resources_where_an_exchange_is_named() -> None:
    access((Operation.WRITE, "logs")).check_publish("logs", ["any", "secret"])


def test_dead_letters_need_write_on_their_exchange() -> None:
    reader = access((Operation.READ, "q"), (Operation.WRITE, "dlx"))

    reader.check_dead_letters("q", arguments(exchange="dlx"))
    with pytest.raises(AmqpFault, match="write access to exchange 'other'"):
        reader.check_dead_letters("q", arguments(exchange="other"))
    with pytest.raises(AmqpFault, match="read access to queue 'r'"):
        reader.check_dead_letters("r", arguments(exchange="dlx"))


@pytest.mark.parametrize("default", ["", "amq.default"])
def test_dead_letters_by_the_default_exchange_need_write_on_their_queue(default: str) -> None:
    owner = access((Operation.READ, "q"), (Operation.WRITE, "dead"))

    owner.check_dead_letters("q", arguments(exchange=default, key="dead"))
    with pytest.raises(AmqpFault, match="write access to queue 'secret'"):
        owner.check_dead_letters("q", arguments(exchange=default, key="secret"))
    with pytest.raises(AmqpFault, match=r"write access to exchange 'amq\.default'"):
        owner.check_dead_letters("q", arguments(exchange=default))
