"""Foreign brokers that register with this name server: they are routed to until they expire.

A broker registers every 30 s. It is forgotten when it unregisters, when its connection ends, and
some time after its last registration. In memory only: after a start they register anew.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from adapters.rocketmq.config import NameServerConfig
from adapters.rocketmq.nameserver.routes import MASTER_ID, BrokerEntry, QueueEntry
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.wire import ResponseCode
from gateway.clock import Clock
from gateway.deadlines import Deadlines
from gateway.errors import Overloaded
from gateway.model import Buffer

NAME_CHARS_MAX: Final = 255
_NUMBER_MAX: Final = (1 << 31) - 1
_WRAPPER: Final = "topicConfigSerializeWrapper"


@dataclass(slots=True)
class RegisteredBroker:
    """Broker that has registered. ``holder`` is its connection; ``topics`` are a master's."""

    name: str
    cluster: str
    broker_id: int
    address: str
    holder: object
    ends_ms: int = 0
    topics: Mapping[str, QueueEntry] = field(default_factory=dict)


class BrokerRegistry:
    """Registered brokers by name and broker id. Loop only."""

    def __init__(self, config: NameServerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._brokers: dict[tuple[str, int], RegisteredBroker] = {}
        self._deadlines: Deadlines[tuple[str, int]] = Deadlines(clock, self._expire)

    def __len__(self) -> int:
        return len(self._brokers)

    def close(self) -> None:
        """Stop the timer; nothing expires any more."""
        self._deadlines.close()

    def register(self, broker: RegisteredBroker) -> None:
        """Add or renew a broker. Error: ``Overloaded`` at the bound."""
        key = broker.name, broker.broker_id
        if key not in self._brokers and len(self._brokers) >= self._config.brokers_max:
            raise Overloaded(f"{self._config.brokers_max} brokers are registered")
        broker.ends_ms = self._clock.monotonic_ms() + self._config.broker_expiry_s * 1_000
        self._brokers[key] = broker
        self._deadlines.arm(key, broker.ends_ms)

    def unregister(self, name: str, broker_id: int) -> None:
        """Forget a broker, if it is there."""
        self._brokers.pop((name, broker_id), None)

    def end_holder(self, holder: object) -> None:
        """Forget the brokers that have registered last on a connection: it has ended."""
        gone = [key for key, one in self._brokers.items() if one.holder == holder]
        for key in gone:
            del self._brokers[key]

    def _expire(self, key: tuple[str, int]) -> None:
        broker = self._brokers.get(key)
        if broker is None:
            return
        if broker.ends_ms <= self._clock.monotonic_ms():
            del self._brokers[key]
        else:
            self._deadlines.arm(key, broker.ends_ms)

    def master_address(self, name: str) -> str | None:
        """Return the address of a broker's master."""
        master = self._brokers.get((name, MASTER_ID))
        return None if master is None else master.address

    def topics(self) -> Iterator[tuple[str, str]]:
        """Yield (cluster, topic) of each registered topic."""
        for broker in self._brokers.values():
            for topic in broker.topics:
                yield broker.cluster, topic

    def queues_of(self, topic: str) -> list[QueueEntry]:
        """Return the queues of a topic on all registered masters."""
        found = [one.topics.get(topic) for one in self._brokers.values()]
        return [queues for queues in found if queues is not None]

    def entries(self, names: set[str] | None = None) -> list[BrokerEntry]:
        """Return the brokers of some names, of all with None."""
        clusters: dict[str, str] = {}
        addresses: dict[str, dict[int, str]] = {}
        for (name, broker_id), broker in self._brokers.items():
            if names is None or name in names:
                clusters[name] = broker.cluster
                addresses.setdefault(name, {})[broker_id] = broker.address
        return [BrokerEntry(name, clusters[name], found) for name, found in addresses.items()]


def decode_topics(body: Buffer, broker_name: str, *, topics_max: int) -> dict[str, QueueEntry]:
    """Return the topics in a registration's body. Errors: ``Refused``, ``Overloaded``."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _illegal(f"the body is no JSON: {error}") from None
    wrapper = found.get(_WRAPPER) if isinstance(found, dict) else None
    table = wrapper.get("topicConfigTable", {}) if isinstance(wrapper, dict) else None
    if not isinstance(table, dict):
        raise _illegal(f"the body has no {_WRAPPER} with a topicConfigTable")
    if len(table) > topics_max:
        raise Overloaded(f"{len(table)} topics, at most {topics_max} are kept of a broker")
    return {
        topic: _queues(broker_name, config)
        for topic, config in table.items()
        if len(topic) <= NAME_CHARS_MAX
    }


def _queues(broker_name: str, config: Any) -> QueueEntry:  # noqa: ANN401 - JSON
    if not isinstance(config, dict):
        raise _illegal("a topic's config is no object")
    return QueueEntry(
        broker_name,
        _number(config, "readQueueNums"),
        _number(config, "writeQueueNums"),
        _number(config, "perm"),
        _number(config, "topicSysFlag"),
    )


def _number(config: dict[str, Any], name: str) -> int:
    value = config.get(name, 0)
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise _illegal(f"{name} of a topic is no number")
    return value


def _illegal(remark: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, remark)
