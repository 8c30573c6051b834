"""An operator ends a client's connection, by a node that does not serve the client's session."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.admin.token import read_token
from gateway.shards.model import NoLink
from gateway.slots import shard_of_client
from tests.support.lossy_network import Chances, LossyNetwork
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import Kind
from tests.support.two_nodes import HOSTS, SHARDS, TwoNodes

ADMINISTRATIVE_ACTION: Final = 0x98
CALLS: Final = 40


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    with TwoNodes(tmp_path, ["mqtt"], "") as nodes:
        nodes.move([shard_of_client("default", "c", SHARDS)], to=1)
        yield nodes


def disconnect(nodes: TwoNodes, index: int) -> tuple[int, dict[str, Any]]:
    """Ask a node to disconnect the client; return the status and the body."""
    settings = nodes.kernels[index].settings
    token = read_token(Path(settings.node.data_dir))
    connection = http.client.HTTPConnection(settings.admin.bind, timeout=60)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    body = json.dumps({"values": {"client_id": "c"}})
    connection.request("POST", "/v1/adapters/mqtt/disconnect", body, headers)
    answer = connection.getresponse()
    data = json.loads(answer.read())
    connection.close()
    return answer.status, data


def connected(nodes: TwoNodes) -> RawClient:
    client = RawClient(nodes.ports["mqtt"], host=HOSTS[1])
    client.connect("c")
    return client


def assert_ended(client: RawClient) -> None:
    [last] = client.until_closed()
    assert (last.kind, last.code) == (Kind.DISCONNECT, ADMINISTRATIVE_ACTION)


@pytest.mark.parametrize("index", [0, 1])
def test_any_node_ends_the_connection(nodes: TwoNodes, index: int) -> None:
    with connected(nodes) as client:
        assert disconnect(nodes, index) == (200, {"client_id": "c"})
        assert_ended(client)
    status, found = disconnect(nodes, index)
    assert (status, found["error"]) == (400, "InvalidRequest")


def test_without_a_way_to_the_owner_nothing_is_done(nodes: TwoNodes) -> None:
    nodes.call(lambda: setattr(nodes.kernels[0].broker.shard_calls, "link", NoLink()))
    with connected(nodes) as client:
        status, found = disconnect(nodes, 0)
        assert (status, found["error"]) == (421, "NotOwner")
        assert client.ping() == []


def test_a_lost_answer_is_unknown_and_a_done_one_is_done(nodes: TwoNodes) -> None:
    """Frames are lost, doubled and late: the connection is ended or not, as the answer says."""

    def join() -> LossyNetwork:
        network = LossyNetwork(seed=7, chances=Chances(drop=0.3, double=0.3, late=0.1))
        for kernel in nodes.kernels:
            network.join(kernel.placement.node_id, kernel.broker.shard_calls)
        return network

    network = nodes.call(join)
    outcomes = set()
    for _ in range(CALLS):
        with connected(nodes) as client:
            status, found = disconnect(nodes, 0)
            outcomes.add((status, found.get("error")))
            if status == 200:
                assert_ended(client)
    # Of a call whose frame came twice the second may find nobody, and answer first.
    assert outcomes <= {(200, None), (503, "OutcomeUnknown"), (400, "InvalidRequest")}
    assert outcomes >= {(200, None), (503, "OutcomeUnknown")}
    assert network.dropped > 0
    assert network.doubled > 0
