"""Direct reply-to: answers that reach the channel which has asked, without a queue."""

import pytest

from adapters.amqp.replies import REPLY_PREFIX, REPLY_TO
from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicDeliver,
    BasicReturn,
)
from adapters.amqp.v091.methods.channel import ChannelClose, ChannelCloseOk
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from adapters.amqp.v091.methods.tx import TxCommit, TxCommitOk, TxSelect, TxSelectOk
from adapters.amqp.v091.properties import Properties, decode_properties, encode_properties
from tests.adapters.amqp.conformance.conftest import Rig
from tests.adapters.amqp.conformance.methods import consume, declare, get
from tests.support.amqp_raw import RawAmqp
from tests.support.amqp_target import NEWER, OWN

ASKING = encode_properties(Properties(reply_to=REPLY_TO, correlation_id="1"))


@pytest.fixture
def client(rig: Rig) -> RawAmqp:
    return rig.client()


def begin(client: RawAmqp, tag: str = "replies") -> None:
    """Start the reply consumer of channel 1."""
    found = client.ask(1, consume(REPLY_TO, tag, no_ack=True), BasicConsumeOk)
    assert found.consumer_tag == tag


def ask(client: RawAmqp, server: RawAmqp, queue: str) -> str:
    """Send a request, and return the address of its answer as a server sees it."""
    server.ask(1, declare(queue, exclusive=True), QueueDeclareOk)
    server.ask(1, consume(queue, no_ack=True), BasicConsumeOk)
    client.publish(1, queue, b"question", properties=ASKING)
    found = decode_properties(server.read_message().properties)
    assert found.correlation_id == "1"
    assert found.reply_to is not None
    return found.reply_to


def test_answer_reaches_the_channel_that_has_asked(rig: Rig, client: RawAmqp) -> None:
    begin(client)
    server = rig.client()
    address = ask(client, server, rig.name())
    assert address.startswith(REPLY_PREFIX)
    properties = encode_properties(Properties(correlation_id="1"))
    server.publish(1, address, b"answer", properties=properties)
    found = client.read_message()
    method = found.method
    assert isinstance(method, BasicDeliver)
    assert (method.consumer_tag, method.redelivered) == ("replies", False)
    assert (method.exchange, method.routing_key) == ("", address)
    assert (found.properties, found.body) == (properties, b"answer")


def test_large_answers_come_in_several_frames(rig: Rig, client: RawAmqp) -> None:
    begin(client)
    server = rig.client()
    address = ask(client, server, rig.name())
    body = bytes(range(256)) * 1_200
    server.publish(1, address, body)
    server.publish(1, address, b"")
    assert [client.read_message().body, client.read_message().body] == [body, b""]


def test_request_without_a_reply_consumer(rig: Rig, client: RawAmqp) -> None:
    client.publish(1, rig.name(), b"question", properties=ASKING)
    assert client.closed() == (
        "channel 406 PRECONDITION_FAILED - fast reply consumer does not exist (60,40)"
    )


def test_reply_consumers_take_no_acknowledgements(client: RawAmqp) -> None:
    assert client.fault(1, consume(REPLY_TO)) == (
        "channel 406 PRECONDITION_FAILED - reply consumer cannot acknowledge (60,20)"
    )


def test_second_reply_consumer_of_a_channel(client: RawAmqp) -> None:
    begin(client)
    assert client.fault(1, consume(REPLY_TO, "other", no_ack=True)) == (
        "channel 406 PRECONDITION_FAILED - reply consumer already set (60,20)"
    )


def test_cancelled_reply_consumer_may_start_again(client: RawAmqp) -> None:
    begin(client)
    client.ask(1, BasicCancel("replies", nowait=False), BasicCancelOk)
    begin(client, "second")


def test_declaring_an_address_says_whether_the_requester_is_there(
    rig: Rig, client: RawAmqp
) -> None:
    begin(client)
    server = rig.client()
    address = ask(client, server, rig.name())
    found = server.ask(1, declare(address, passive=True), QueueDeclareOk)
    assert found == QueueDeclareOk(address, 0, 1)
    client.ask(1, ChannelClose(200, "", 0, 0), ChannelCloseOk)
    assert server.fault(1, declare(address, passive=True)) == (
        f"channel 404 NOT_FOUND - no queue '{address}' in vhost '/' (50,10)"
    )


def test_the_name_itself_is_declared_as_a_queue_with_a_consumer(client: RawAmqp) -> None:
    assert client.ask(1, declare(REPLY_TO), QueueDeclareOk) == QueueDeclareOk(REPLY_TO, 0, 1)


def test_the_name_itself_is_no_queue_to_get_from(client: RawAmqp) -> None:
    assert client.fault(1, get(REPLY_TO)) == (
        f"channel 404 NOT_FOUND - no queue '{REPLY_TO}' in vhost '/' (60,70)"
    )


def test_answer_to_a_requester_that_has_gone_is_returned_and_confirmed(
    rig: Rig, client: RawAmqp
) -> None:
    begin(client)
    server = rig.client()
    address = ask(client, server, rig.name())
    client.ask(1, BasicCancel("replies", nowait=False), BasicCancelOk)
    server.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
    server.publish(1, address, b"late", mandatory=True)
    returned = server.read_message()
    assert returned.method == BasicReturn(312, "NO_ROUTE", "", address)
    assert server.read() == BasicAck(1, multiple=False)


@NEWER
def test_answer_to_a_live_requester_is_not_returned(rig: Rig, client: RawAmqp) -> None:
    begin(client)
    server = rig.client()
    address = ask(client, server, rig.name())
    server.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
    server.publish(1, address, b"answer", mandatory=True)
    assert server.read() == BasicAck(1, multiple=False)
    assert client.read_message().body == b"answer"


def test_copy_of_an_answer_goes_to_a_queue(rig: Rig, client: RawAmqp) -> None:
    begin(client)
    server = rig.client()
    address = ask(client, server, rig.name())
    audit = rig.name("audit")
    server.ask(1, declare(audit, exclusive=True), QueueDeclareOk)
    server.ask(1, consume(audit, "audit", no_ack=True), BasicConsumeOk)
    headers = Table([("CC", Field("A", (Field("S", audit),)))])
    properties = encode_properties(Properties(headers=headers))
    server.publish(1, address, b"answer", properties=properties)
    copy = server.read_message()
    assert isinstance(copy.method, BasicDeliver)
    assert (copy.method.routing_key, copy.body) == (address, b"answer")
    assert client.read_message().body == b"answer"


@OWN
def test_answers_of_a_transaction_go_out_at_its_commit(rig: Rig, client: RawAmqp) -> None:
    begin(client)
    server = rig.client()
    address = ask(client, server, rig.name())
    server.ask(1, TxSelect(), TxSelectOk)
    server.publish(1, address, b"in the transaction")
    server.channel(2)
    server.publish(2, address, b"outside")
    assert client.read_message().body == b"outside"
    server.ask(1, TxCommit(), TxCommitOk)
    assert client.read_message().body == b"in the transaction"
