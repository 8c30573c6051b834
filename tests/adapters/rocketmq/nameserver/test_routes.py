"""Bodies of the name server's responses, as the server writes them."""

import json

from adapters.rocketmq.nameserver.routes import (
    BrokerEntry,
    QueueEntry,
    encode_cluster,
    encode_route,
    encode_table,
    encode_topics,
)

BROKER = BrokerEntry("b", "DefaultCluster", {1: "h:2", 0: "h:1"})


def test_a_route_is_that_of_the_java_server() -> None:
    """The text is that of RocketMQ 5.5.0 on the wire, with a second broker id."""
    queues = [QueueEntry("b", 4, 4)]
    rest = (
        '"brokerName":"b","cluster":"DefaultCluster","enableActingMaster":false}],'
        '"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,'
        '"topicSysFlag":0,"writeQueueNums":4}]}'
    )

    assert encode_route([BROKER], queues, is_standard=False).decode() == (
        '{"brokerDatas":[{"brokerAddrs":{0:"h:1",1:"h:2"},' + rest
    )
    assert encode_route([BROKER], queues, is_standard=True).decode() == (
        '{"brokerDatas":[{"brokerAddrs":{"0":"h:1","1":"h:2"},' + rest
    )


def test_an_ordered_topic_names_its_queues() -> None:
    route = json.loads(encode_route([], [], is_standard=True, order_config='b:"4'))

    assert route["orderTopicConf"] == 'b:"4'


def test_cluster_information_has_bare_numbers_as_keys() -> None:
    other = BrokerEntry("c", "DefaultCluster", {0: "h:3"})

    assert encode_cluster([BROKER, other]).decode() == (
        '{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"b",'
        '"cluster":"DefaultCluster","enableActingMaster":false},'
        '"c":{"brokerAddrs":{0:"h:3"},"brokerName":"c","cluster":"DefaultCluster",'
        '"enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["b","c"]}}'
    )


def test_lists_and_tables_are_json() -> None:
    assert encode_topics(["a"]) == b'{"topicList":["a"]}'
    assert encode_topics(["a"], "h:1") == b'{"brokerAddr":"h:1","topicList":["a"]}'
    assert encode_table({"k": "v"}) == b'{"table":{"k":"v"}}'
