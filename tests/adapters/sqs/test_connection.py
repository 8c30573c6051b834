"""One connection: order of requests and answers, limits, and a clean end."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.sqs.connection import SqsConnection
from adapters.sqs.handlers import HANDLERS
from tests.adapters.sqs.handlers.serving import Live, running
from tests.support.waiting import until

JSON = "application/x-amz-json-1.0"
WITHIN_S = 60
_PAUSE = threading.Event()  # never set


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with running(tmp_path) as live:
        yield live


def request(
    action: str,
    params: dict[str, Any],
    *headers: str,
    target: str = "/",
    body: bytes | None = None,
) -> bytes:
    data = json.dumps(params).encode() if body is None else body
    lines = [
        f"POST {target} HTTP/1.1",
        "Host: h:1",
        f"X-Amz-Target: AmazonSQS.{action}",
        f"Content-Type: {JSON}",
        f"Content-Length: {len(data)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Answer:
    """A complete answer. ``value`` is its decoded JSON."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode().rstrip().split("\r\n")
        self.status = int(first.split(" ")[1])
        pairs = (line.split(": ", 1) for line in lines)
        self.headers = {name.lower(): value for name, value in pairs}
        self.body = body

    @property
    def value(self) -> Any:
        return json.loads(self.body)


class Client:
    """A raw connection to the endpoint."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *requests: bytes) -> None:
        self.writer.write(b"".join(requests))

    async def answer(self, *, has_body: bool = True) -> Answer:
        async with asyncio.timeout(WITHIN_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            answer = Answer(head, b"")
            if has_body and answer.status != 100:
                answer.body = await self.reader.readexactly(
                    int(answer.headers["content-length"])
                )
            return answer

    async def exchange(self, *requests: bytes) -> list[Answer]:
        self.send(*requests)
        return [await self.answer() for _ in requests]

    def close(self) -> None:
        self.writer.transport.abort()

    async def is_closed(self) -> bool:
        async with asyncio.timeout(WITHIN_S):
            return await self.reader.read(1) == b""


async def connect(live: Live) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", live.adapter.listener.port))
    live.clients.append(client)
    return client


def of(live: Live) -> SqsConnection:
    """Return the one connection that there is."""
    (connection,) = live.adapter.listener.connections
    assert isinstance(connection, SqsConnection)
    return connection


def send_message(body: str, *headers: str) -> bytes:
    return request("SendMessage", {"QueueUrl": "jobs", "MessageBody": body}, *headers)


def receive() -> bytes:
    params = {"QueueUrl": "jobs", "WaitTimeSeconds": 20, "MaxNumberOfMessages": 1}
    return request("ReceiveMessage", params)


# --- order


async def test_pipelined_requests_are_answered_in_order(live: Live) -> None:
    client = await connect(live)

    answers = await client.exchange(
        request("CreateQueue", {"QueueName": "jobs"}),
        send_message("a"),
        request("GetQueueUrl", {"QueueName": "none"}),
        send_message("b"),
        receive(),
    )

    assert [answer.status for answer in answers] == [200, 200, 400, 200, 200]
    assert answers[0].value["QueueUrl"] == "http://h:1/000000000000/jobs"
    assert answers[1].value["MD5OfMessageBody"] == "0cc175b9c0f1b6a831c399e269772661"
    assert answers[4].value["Messages"][0]["Body"] == "a"


async def test_a_receive_that_waits_holds_up_answers_but_not_requests(live: Live) -> None:
    await live.queue("jobs")
    client = await connect(live)

    received, sent = await client.exchange(receive(), send_message("a"))

    assert received.value["Messages"][0]["Body"] == "a"
    assert "MessageId" in sent.value


async def test_answers_of_one_turn_leave_in_one_write(live: Live) -> None:
    client = await connect(live)
    listener = live.adapter.listener
    before = listener.socket_writes

    await client.exchange(*[request("ListQueues", {})] * 20)

    assert listener.socket_writes == before + 1


async def test_receives_that_wait_are_no_tasks(live: Live) -> None:
    await live.queue("jobs")
    clients = [await connect(live) for _ in range(50)]
    before = len(asyncio.all_tasks())

    for client in clients:
        client.send(receive())
    connections = live.adapter.listener.connections
    await until(lambda: sum(connection.is_busy() for connection in connections) == len(clients))

    assert len(asyncio.all_tasks()) <= before + 1  # of ``until`` itself


# --- HTTP


@pytest.mark.parametrize(
    ("first_line", "status", "body"),
    [
        ("GET / HTTP/1.1", 200, b"Amazon SQS is spoken here.\n"),
        ("OPTIONS /any HTTP/1.1", 200, b""),
        ("PUT / HTTP/1.1", 405, b"Method not allowed.\n"),
        ("DELETE /000000000000/jobs HTTP/1.1", 405, b"Method not allowed.\n"),
    ],
)
async def test_other_methods_have_an_answer(
    live: Live, first_line: str, status: int, body: bytes
) -> None:
    client = await connect(live)
    (answer,) = await client.exchange(f"{first_line}\r\nHost: h\r\n\r\n".encode())
    assert (answer.status, answer.body) == (status, body)
    assert status == 200 or answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_head_has_no_body_and_does_nothing(live: Live) -> None:
    await live.queue("jobs")
    client = await connect(live)
    query = "Action=DeleteQueue&QueueUrl=jobs"
    client.send(
        f"HEAD /?{query} HTTP/1.1\r\nHost: h\r\n\r\n".encode(), request("ListQueues", {})
    )

    head = await client.answer(has_body=False)
    listed = await client.answer()

    assert (head.status, head.headers["content-length"]) == (200, "27")
    assert len(listed.value["QueueUrls"]) == 1


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 400, b"MissingAction"),
        (b"GET /?Action=Nothing HTTP/1.1\r\n\r\n", 400, b"InvalidAction"),
        (b"GET /?Action=SendMessage HTTP/1.1\r\n\r\n", 400, b"MissingParameter"),
        (
            b"POST / HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n",
            400,
            b"InvalidAction",
        ),
    ],
)
async def test_what_names_no_operation_is_refused_in_xml(
    live: Live, data: bytes, status: int, code: bytes
) -> None:
    client = await connect(live)
    (answer,) = await client.exchange(data)
    assert answer.status == status
    assert b"<Code>" + code + b"</Code>" in answer.body
    assert answer.headers["content-type"] == "text/xml"


async def test_an_unknown_target_is_refused_in_json(live: Live) -> None:
    client = await connect(live)
    (answer,) = await client.exchange(request("MakeTea", {}))
    assert answer.value["__type"].endswith("#UnknownOperationException")
    assert answer.headers["x-amzn-query-error"] == "InvalidAction;Sender"


async def test_the_path_names_the_queue(live: Live) -> None:
    await live.queue("jobs")
    client = await connect(live)

    by_json, by_query = await client.exchange(
        request("SendMessage", {"MessageBody": "a"}, target="/000000000000/jobs"),
        b"GET /000000000000/jobs?Action=SendMessage&MessageBody=b HTTP/1.1\r\nHost: h\r\n\r\n",
    )

    assert by_json.status == 200
    assert b"<MD5OfMessageBody>92eb5ffee6ae2fec3ad71c777531578f<" in by_query.body


async def test_every_answer_has_an_id_of_its_own_and_the_time(live: Live) -> None:
    client = await connect(live)
    answers = await client.exchange(*[request("ListQueues", {})] * 3)
    assert len({answer.headers["x-amzn-requestid"] for answer in answers}) == 3
    assert all(answer.headers["date"].endswith(" GMT") for answer in answers)


@pytest.mark.parametrize(
    "data",
    [
        request("ListQueues", {}, "Connection: close"),
        b"GET / HTTP/1.0\r\n\r\n",
    ],
)
async def test_the_last_answer_of_a_connection_says_so(live: Live, data: bytes) -> None:
    client = await connect(live)
    (answer,) = await client.exchange(data)
    assert answer.headers["connection"] == "close"
    assert await client.is_closed()


async def test_who_waits_for_continue_is_told(live: Live) -> None:
    await live.queue("jobs")
    client = await connect(live)
    data = send_message("a", "Expect: 100-continue")
    head, _, body = data.partition(b"\r\n\r\n")

    client.send(request("ListQueues", {}), head + b"\r\n\r\n")
    listed, interim = await client.answer(), await client.answer()
    client.send(body)
    sent = await client.answer()

    assert (listed.status, interim.status, sent.status) == (200, 100, 200)


async def test_a_body_in_chunks_is_a_body(live: Live) -> None:
    client = await connect(live)
    head = b"POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.CreateQueue\r\n"
    chunks = (
        b"a\r\n" + b'{"QueueNam' + b"\r\n9\r\n" + b'e":"jobs"}'[:9] + b"\r\n1\r\n}\r\n0\r\n\r\n"
    )
    (answer,) = await client.exchange(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert answer.status == 200


# --- bounds


async def test_what_is_not_http_is_refused_and_closed(live: Live) -> None:
    client = await connect(live)
    listed, refused = await client.exchange(request("ListQueues", {}), b"\x16\x03\x01\r\n\r\n")
    assert (listed.status, refused.status) == (200, 400)
    assert await client.is_closed()
    assert live.adapter.listener.faults["BadRequest"] == 1


async def test_who_sends_too_much_can_read_why(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"request_bytes_max": 65_536}) as live:
        client = await connect(live)
        client.send(request("SendMessage", {}, body=b"x" * 3_000_000))

        answer = await client.answer()

        assert answer.status == 413
        assert b'#RequestEntityTooLarge"' in answer.body
        await client.writer.drain()  # the rest is taken, nobody is cut off
        assert await client.is_closed()


async def test_who_goes_on_sending_is_cut_off_in_the_end(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"request_bytes_max": 65_536}) as live:
        client = await connect(live)
        await client.exchange(request("ListQueues", {}))
        client.send(request("SendMessage", {}, body=b"x" * 100_000)[:-1])
        await client.answer()
        assert not of(live).is_closing

        of(live).check_deadlines(live.adapter.listener.now_s + 31)

        assert of(live).is_closing
        assert live.adapter.listener.faults["frame_s_max"] == 1


async def test_headers_that_never_end_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"header_bytes_max": 4_096}) as live:
        client = await connect(live)
        client.send(b"GET / HTTP/1.1\r\nX: " + b"a" * 400_000)
        answer = await client.answer()
        assert answer.status == 431
        assert await client.is_closed()


async def test_a_request_that_does_not_come_to_an_end_is_cut_off(live: Live) -> None:
    client = await connect(live)
    await client.exchange(request("ListQueues", {}))
    client.send(request("ListQueues", {})[:-1])
    await until(lambda: of(live).frame_started_s is not None)

    of(live).check_deadlines(live.adapter.listener.now_s + 31)

    assert await client.is_closed()
    assert live.adapter.listener.faults["frame_s_max"] == 1


async def test_a_receive_that_waits_is_not_silence(live: Live) -> None:
    await live.queue("jobs")
    client = await connect(live)
    client.send(receive())
    await until(lambda: live.adapter.dispatcher.requests["ReceiveMessage"] == 1)
    waiting = next(c for c in live.adapter.listener.connections if c.is_busy())

    waiting.check_deadlines(live.adapter.listener.now_s + 100_000)

    assert not waiting.is_closing


async def test_more_requests_than_may_wait_are_not_read(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"requests_pipelined_max": 4}) as live:
        await live.queue("jobs")
        client = await connect(live)
        client.send(*[receive()] * 10)
        await until(lambda: any(c.is_busy() for c in live.adapter.listener.connections))
        waiting = next(c for c in live.adapter.listener.connections if c.is_busy())
        await until(waiting.is_held_but_for)

        for number in range(10):
            await live.call("send_message", QueueUrl="jobs", MessageBody=str(number))
        answers = [await client.answer() for _ in range(10)]

        bodies = [answer.value["Messages"][0]["Body"] for answer in answers]
        assert sorted(bodies) == [str(number) for number in range(10)]


async def test_large_bodies_wait_for_room(tmp_path: Path) -> None:
    limits = {"request_bytes_max": 4 * 1024 * 1024, "request_bytes_budget": 4 * 1024 * 1024}
    async with running(tmp_path, sqs=limits) as live:
        budget = live.adapter.body_budget
        first, second, third = await connect(live), await connect(live), await connect(live)
        data = request("SendMessage", {}, body=b" " * 3_000_000)
        first.send(data[:100_000])
        await until(lambda: 0 < budget.bytes_taken <= 100_000)
        second.send(data)  # what is announced only keeps nobody waiting
        assert (await second.answer()).status == 400

        first.send(data[100_000:2_900_000])
        third.send(data[:2_900_000])
        await until(lambda: budget.free_bytes <= 0)
        third.send(data[2_900_000:])
        first.send(data[2_900_000:])
        assert [(await first.answer()).status, (await third.answer()).status] == [400, 400]
        assert (budget.bytes_taken, budget.waiting_count, budget.runner) == (0, 0, None)


async def test_room_is_given_back_by_who_goes(live: Live) -> None:
    budget = live.adapter.body_budget
    client = await connect(live)
    client.send(request("SendMessage", {}, body=b" " * 1_000_000)[:500_000])
    await until(lambda: budget.bytes_taken > 400_000)

    client.writer.close()

    await until(lambda: budget.bytes_taken == 0)


# --- the end


async def test_a_bug_closes_one_connection_and_no_other(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(_call: object, _node: object) -> None:
        raise ZeroDivisionError

    async def handle_later(_call: object, _node: object) -> dict[str, Any]:
        raise ZeroDivisionError

    other = await connect(live)
    for handler in (handle, handle_later):
        monkeypatch.setitem(HANDLERS, "ListQueues", handler)
        client = await connect(live)
        client.send(request("ListQueues", {}))
        assert await client.is_closed()
    monkeypatch.undo()

    (answer,) = await other.exchange(request("ListQueues", {}))
    assert answer.status == 200
    assert live.adapter.listener.faults["bug"] == 2


async def test_who_has_gone_receives_nothing(live: Live) -> None:
    url = await live.queue("jobs")
    client = await connect(live)
    client.send(receive())
    await until(lambda: live.adapter.dispatcher.requests["ReceiveMessage"] == 1)

    client.writer.close()
    await until(lambda: not any(c.is_busy() for c in live.adapter.listener.connections))
    await live.call("send_message", QueueUrl=url, MessageBody="a")

    received = await live.call("receive_message", QueueUrl=url)
    assert received["Messages"][0]["Body"] == "a"


async def test_a_node_that_drains_ends_receives_that_wait(live: Live) -> None:
    await live.queue("jobs")
    client = await connect(live)
    client.send(receive())
    await until(lambda: live.adapter.dispatcher.requests["ReceiveMessage"] == 1)

    await live.adapter.drain(WITHIN_S)

    answer = await client.answer()
    assert (answer.status, answer.body) == (200, b"{}")
    assert answer.headers["connection"] == "close"
    assert await client.is_closed()


async def test_a_body_of_too_many_values_is_refused(live: Live) -> None:
    client = await connect(live)
    (answer,) = await client.exchange(request("ListQueues", {"more": [1] * 50_000}))
    assert answer.status == 400
    assert answer.value["__type"].endswith("#SerializationException")
    assert "more than 10000 names and values" in answer.value["message"]
