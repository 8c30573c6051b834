"""Bodies of the name server's responses (``TopicRouteData``, ``ClusterInfo``), written by hand.

The server's JSON has numbers as keys of objects. In routes they are quoted for clients from 4.9.4
on, or those that ask for standard JSON, and bare for others; each kind reads its own only
(apache/rocketmq#4471, #1445). In the other bodies they are bare for all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import orjson

READABLE: Final = 4
WRITABLE: Final = 2
INHERITED: Final = 1
MASTER_ID: Final = 0


class BrokerEntry(NamedTuple):
    """Broker of a route: the addresses of its nodes, by broker id."""

    name: str
    cluster: str
    addresses: Mapping[int, str]


class QueueEntry(NamedTuple):
    """Queues of a topic on one broker. ``permission``: 4 to read, 2 to write, 1 to inherit."""

    broker_name: str
    read_queues: int
    write_queues: int
    permission: int = READABLE | WRITABLE
    system_flag: int = 0


def encode_route(
    brokers: Iterable[BrokerEntry],
    queues: Iterable[QueueEntry],
    *,
    is_standard: bool,
    order_config: str | None = None,
) -> bytes:
    """Return a topic's route. ``is_standard``: numbers as keys are quoted."""
    order = "" if order_config is None else f'"orderTopicConf":{_text(order_config)},'
    broker_datas = ",".join(_broker(one, is_standard=is_standard) for one in brokers)
    queue_datas = ",".join(map(_queues, queues))
    return (
        f'{{"brokerDatas":[{broker_datas}],"filterServerTable":{{}},{order}'
        f'"queueDatas":[{queue_datas}]}}'
    ).encode()


def encode_cluster(brokers: Sequence[BrokerEntry]) -> bytes:
    """Return the cluster information: all brokers, and their names by cluster."""
    clusters: dict[str, list[str]] = {}
    for broker in brokers:
        clusters.setdefault(broker.cluster, []).append(broker.name)
    table = ",".join(f"{_text(one.name)}:{_broker(one, is_standard=False)}" for one in brokers)
    names = orjson.dumps(clusters).decode()
    return f'{{"brokerAddrTable":{{{table}}},"clusterAddrTable":{names}}}'.encode()


def encode_topics(topics: Sequence[str], broker_address: str | None = None) -> bytes:
    """Return a list of topics."""
    body: dict[str, object] = {} if broker_address is None else {"brokerAddr": broker_address}
    return orjson.dumps({**body, "topicList": topics})


def encode_table(table: Mapping[str, str]) -> bytes:
    """Return a table of texts (``KVTable``)."""
    return orjson.dumps({"table": dict(table)})


def _broker(broker: BrokerEntry, *, is_standard: bool) -> str:
    quote = '"' if is_standard else ""
    addresses = ",".join(
        f"{quote}{number}{quote}:{_text(address)}"
        for number, address in sorted(broker.addresses.items())
    )
    return (
        f'{{"brokerAddrs":{{{addresses}}},"brokerName":{_text(broker.name)},'
        f'"cluster":{_text(broker.cluster)},"enableActingMaster":false}}'
    )


def _queues(queues: QueueEntry) -> str:
    return (
        f'{{"brokerName":{_text(queues.broker_name)},"perm":{queues.permission},'
        f'"readQueueNums":{queues.read_queues},"topicSysFlag":{queues.system_flag},'
        f'"writeQueueNums":{queues.write_queues}}}'
    )


def _text(text: str) -> str:
    return orjson.dumps(text).decode()
