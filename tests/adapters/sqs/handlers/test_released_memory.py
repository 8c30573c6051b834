"""Memory of a request and a connection is freed at their end, without the garbage collector."""

import gc
from collections.abc import Iterator

import pytest

from adapters.sqs.call import Call
from adapters.sqs.connection import SqsConnection
from adapters.sqs.http.reply import Reply
from adapters.sqs.session import HttpSession
from tests.adapters.sqs.handlers.messages import delete, receive_one, send
from tests.adapters.sqs.handlers.query import get
from tests.adapters.sqs.handlers.serving import Live

KINDS = (Call, Reply, HttpSession, SqsConnection)
COUNT = 5


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Disable the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left() -> dict[str, int]:
    """Return how many objects there are of each kind."""
    found = [type(one) for one in gc.get_objects()]
    return {kind.__name__: found.count(kind) for kind in KINDS}


@pytest.mark.usefixtures("no_collector")
async def test_requests_leave_nothing_behind(live: Live) -> None:
    url = await live.queue()
    before = left()

    for _ in range(COUNT):
        await send(live, url)
        await delete(live, url, await receive_one(live, url))
        await live.refused("send_message", QueueUrl=url, MessageBody="")

    assert left() == before


@pytest.mark.usefixtures("no_collector")
async def test_connections_leave_nothing_behind(live: Live) -> None:
    url = await live.queue()
    before = left()

    for _ in range(COUNT):
        await get(live, url, Action="GetQueueAttributes")
    while len(live.adapter.listener.connections) > 1:  # the one that boto keeps
        await live.attributes(url)

    assert left() == before
