"""``headgate bench``: the rates of this machine, through the node's Kafka endpoint.

A quick self-test, not a comparison: client and server share the machine. The client is
librdkafka (the extra ``headgate[bench]``), because a client in Python would measure itself.
"""

import secrets
import time
from typing import Annotated, Any, NamedTuple

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient, NodeUnreachable
from gateway.cli.output import print_rows, say
from gateway.cli.settings import client_of, settings_of
from gateway.errors import GatewayError
from gateway.installation import install_command

_PARTITIONS = 6
_LATENCY_S_MAX = 5.0
_DRAIN_S_MAX = 60.0
_CONSUME_S_MAX = 60.0


class MissingClient(GatewayError):
    """Missing Kafka client library."""


class BenchFailed(GatewayError):
    """Failed benchmark."""


class Result(NamedTuple):
    """Line of the table. Latencies are of single messages, or of one among many."""

    test: str
    messages_per_s: int
    mb_per_s: float
    p50_ms: float | None
    p99_ms: float | None


def bench(
    *,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds to produce.")] = 5,
    message_bytes: Annotated[int, typer.Option(min=1, max=1_000_000)] = 1_024,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Produce and consume through the running node's Kafka endpoint; print the rates."""
    client_library = _import_client()
    admin = client_of(settings_of(config, assignments))
    server = _kafka_address(admin)
    topic = f"headgate-bench-{secrets.token_hex(4)}"
    admin.send("POST", "topics", body={"name": topic, "partitions": _PARTITIONS})
    if not as_json:
        say(f"{server}: {message_bytes} B messages, acks=all, {_PARTITIONS} partitions\n")
    try:
        produced, count = _produce(client_library, server, topic, message_bytes, seconds)
        results = [
            produced,
            _consume(client_library, server, topic, message_bytes, count),
            _one_by_one(client_library, server, topic, message_bytes, seconds),
        ]
    finally:
        admin.send("DELETE", "topics", topic)
    rows = [result._asdict() for result in results]
    print_rows(rows, Result._fields, as_json=as_json)


def _import_client() -> Any:  # noqa: ANN401 - the library ships no types
    try:
        import confluent_kafka
    except ImportError as error:
        msg = f"bench needs a Kafka client: {install_command('bench')}"
        raise MissingClient(msg) from error
    return confluent_kafka


def _kafka_address(admin: AdminClient) -> str:
    for endpoint in admin.get("node")["endpoints"]:
        if endpoint["protocol"] == "kafka":
            return str(endpoint["url"]).rpartition("//")[2]
    msg = "the node has no Kafka endpoint"
    raise NodeUnreachable(msg)


def _produce(
    library: Any,  # noqa: ANN401
    server: str,
    topic: str,
    message_bytes: int,
    seconds: float,
) -> tuple[Result, int]:
    """Produce as fast as acknowledgements allow; a latency is from call to acknowledgement."""
    producer = library.Producer(
        {
            "bootstrap.servers": server,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 20_000,
        }
    )
    latencies_ms: list[float] = []

    def delivered(error: object, message: Any) -> None:  # noqa: ANN401
        if error is not None:
            raise BenchFailed(str(error))
        latencies_ms.append(message.latency() * 1_000)

    value = secrets.token_bytes(message_bytes)
    started_s = time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        try:
            producer.produce(topic, value, on_delivery=delivered)
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
    left = producer.flush(_DRAIN_S_MAX)
    elapsed_s = time.perf_counter() - started_s
    if left or not latencies_ms:
        msg = f"{left} messages were not acknowledged within {_DRAIN_S_MAX:.0f} s"
        raise BenchFailed(msg)
    count = len(latencies_ms)
    return _result("produce", count, message_bytes, elapsed_s, latencies_ms), count


def _consume(
    library: Any,  # noqa: ANN401
    server: str,
    topic: str,
    message_bytes: int,
    count: int,
) -> Result:
    consumer = library.Consumer(
        {
            "bootstrap.servers": server,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([library.TopicPartition(topic, n, 0) for n in range(_PARTITIONS)])
    seen = 0
    started_s = time.perf_counter()
    while seen < count:
        seen += sum(1 for m in consumer.consume(10_000, 0.1) if m.error() is None)
        if time.perf_counter() - started_s > _CONSUME_S_MAX:
            msg = f"only {seen} of {count} messages came within {_CONSUME_S_MAX:.0f} s"
            raise BenchFailed(msg)
    elapsed_s = time.perf_counter() - started_s
    consumer.close()
    return _result("consume", seen, message_bytes, elapsed_s, [])


def _one_by_one(
    library: Any,  # noqa: ANN401
    server: str,
    topic: str,
    message_bytes: int,
    seconds: float,
) -> Result:
    """Produce each message after the acknowledgement of the one before."""
    producer = library.Producer({"bootstrap.servers": server, "acks": "all", "linger.ms": 0})
    value = secrets.token_bytes(message_bytes)
    latencies_ms: list[float] = []
    started_s = time.perf_counter()
    while time.perf_counter() - started_s < min(seconds, _LATENCY_S_MAX):
        sent_s = time.perf_counter()
        producer.produce(topic, value)
        if producer.flush(_DRAIN_S_MAX):
            msg = f"a message was not acknowledged within {_DRAIN_S_MAX:.0f} s"
            raise BenchFailed(msg)
        latencies_ms.append((time.perf_counter() - sent_s) * 1_000)
    elapsed_s = time.perf_counter() - started_s
    return _result("one by one", len(latencies_ms), message_bytes, elapsed_s, latencies_ms)


def _result(
    test: str, count: int, message_bytes: int, elapsed_s: float, latencies_ms: list[float]
) -> Result:
    ordered = sorted(latencies_ms)
    return Result(
        test,
        round(count / elapsed_s),
        round(count * message_bytes / elapsed_s / 1e6, 1),
        round(ordered[len(ordered) // 2], 2) if ordered else None,
        round(ordered[len(ordered) * 99 // 100], 2) if ordered else None,
    )
