"""Kafka endpoint of the node for jobs that send records: its address, and a paced producer.

The client is librdkafka. It is the only stock client for Python that distinguishes a header without
a value from an empty one and accepts records without key and value; a record that is sent again
must be equal to the original.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from gateway.clock import Clock, SystemClock
from gateway.config.base import parse_address
from gateway.config.settings import Settings
from gateway.errors import GatewayError, RequestError

Headers = Sequence[tuple[str, bytes | None]]

PASSWORD_VARIABLE: Final = "HEADGATE_KAFKA_PASSWORD"  # noqa: S105 - its name
SCRAM: Final = "SCRAM-SHA-256"
ANSWER_S_MAX: Final = 30.0
_DELIVERY_MS_MAX: Final = 300_000
_WAITING_MAX: Final = 10_000  # records sent and not answered yet
_RECORD_BYTES_MAX: Final = 100 * 1024 * 1024
_FAILURES_SHOWN: Final = 5
_MS_PER_S: Final = 1_000
_PAUSE_MS_MAX: Final = 100
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what a node binds to


class EndpointSilent(GatewayError):
    """No Kafka endpoint answers, or it refuses this user."""


class NotSent(GatewayError):
    """The endpoint refused records, or did not answer in time."""


@dataclass(frozen=True)
class Endpoint:
    """Address of the endpoint, with the login. Small enough to be sent to every worker."""

    bootstrap: str
    user: str = ""
    password: str = field(default="", repr=False)
    with_tls: bool = False
    ca_file: str = ""

    def client_config(self) -> dict[str, Any]:
        """Return the common settings of all librdkafka clients."""
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "log_level": 0,  # calls return errors; the library would print them, too
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
        }
        if self.user:
            config |= {
                "sasl.mechanism": SCRAM,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        if self.ca_file:
            config["ssl.ca.location"] = self.ca_file
        tls, sasl = self.with_tls or bool(self.ca_file), bool(self.user)
        config["security.protocol"] = (
            f"{'SASL_' if sasl else ''}{'SSL' if tls else 'PLAINTEXT'}"
        )
        return config

    def ends(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return the ends of partitions, as for ``endingOffsets``: records below are acknowledged.

        Error: ``EndpointSilent``, also for a missing topic.
        """
        counts = self.partition_counts()
        places = {
            TopicPartition(topic, number): OffsetSpec.latest()
            for topic in topics
            for number in range(counts.get(topic, 1))
        }
        found: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        admin = AdminClient(
            self.client_config()
        )  # held: it answers only while it is referenced
        try:
            asked = admin.list_offsets(places, request_timeout=ANSWER_S_MAX)
            for place, answer in asked.items():
                found[place.topic][str(place.partition)] = answer.result(
                    2 * ANSWER_S_MAX
                ).offset
        except KafkaException as error:
            raise silent(self, error) from error
        return found

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic. Error: ``EndpointSilent``."""
        try:
            found = AdminClient(self.client_config()).list_topics(timeout=ANSWER_S_MAX)
        except KafkaException as error:
            raise silent(self, error) from error
        return {name: len(topic.partitions) for name, topic in found.topics.items()}

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        """Create topics with so many partitions each; existing ones stay as they are.

        Errors: ``EndpointSilent``, ``RequestError`` when the endpoint refuses one.
        """
        if not partitions:
            return
        admin = AdminClient(self.client_config())
        wanted = [NewTopic(name, count, 1) for name, count in partitions.items()]
        asked = admin.create_topics(wanted, request_timeout=ANSWER_S_MAX)
        for name, answer in asked.items():
            try:
                answer.result(2 * ANSWER_S_MAX)
            except KafkaException as error:
                code = error.args[0].code()
                if code < 0:  # an error of the client: no server has answered
                    raise silent(self, error) from error
                if code != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise RequestError(f"topic {name}: {error.args[0].str()}") from error


def silent(endpoint: Endpoint, error: KafkaException) -> EndpointSilent:
    """Return the one-line error for an endpoint that cannot be used."""
    return EndpointSilent(f"Kafka endpoint {endpoint.bootstrap}: {error.args[0].str()}")


def endpoint_of(
    settings: Settings, *, bootstrap: str = "", user: str = "", ca_file: Path | None = None
) -> Endpoint:
    """Return the endpoint of the node with these settings, or the one given.

    The password of ``user`` comes from the environment, which process lists do not show.
    Error: ``RequestError``.
    """
    kafka = settings.adapters.get("kafka")
    if not bootstrap:
        if kafka is None:
            raise RequestError("these settings have no Kafka endpoint: name one by --bootstrap")
        advertised = getattr(kafka, "advertise", None)
        address = parse_address(str(advertised or getattr(kafka, "bind", "")))
        host = _EVERYWHERE.get(address.host, address.host)
        bootstrap = str(address._replace(host=host))
    password = os.environ.get(PASSWORD_VARIABLE, "")
    if user and not password:
        raise RequestError(f"--user {user}: {PASSWORD_VARIABLE} holds no password")
    return Endpoint(
        bootstrap,
        user,
        password,
        with_tls=getattr(kafka, "tls_cert", None) is not None,
        ca_file=str(ca_file or ""),
    )


class _FatalLog:
    """Logger for the client. ``reason``: the fatal error."""

    reason = ""

    def log(self, _level: int, _text: str, *parts: str) -> None:
        """Take a line; at level 0 the client logs fatal errors only."""
        said = parts[-1] if parts else ""
        self.reason = said.partition("Fatal error: ")[2] or said


class Sender:
    """Idempotent producer with a rate limit, which counts stored records. One thread.

    ``in_order``: nothing is sent after a refused record, and the first refusal is an error;
    without it refusals are counted and the other records are sent.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        rate_per_s: float = 0,
        in_order: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.sent = 0
        self.restamped = 0
        self.failed = 0
        self.failures: list[str] = []
        self._in_order = in_order
        self._rate_per_s = rate_per_s
        self._clock = clock or SystemClock()
        self._due_ms: float = self._clock.monotonic_ms()
        self._pause = threading.Event()
        config = {
            "enable.idempotence": True,
            "linger.ms": 5,
            "compression.type": "zstd",
            "message.max.bytes": _RECORD_BYTES_MAX,
            "message.timeout.ms": _DELIVERY_MS_MAX,
            "retry.backoff.ms": 50,
        }
        self._fatal = _FatalLog()
        if in_order:
            config["logger"] = self._fatal
            config["enable.gapless.guarantee"] = True
        self._producer = Producer(endpoint.client_config() | config)

    def send(  # noqa: PLR0913 - what a record has
        self,
        topic: str,
        partition: int,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        unix_ms: int | None,
        place: str,
    ) -> None:
        """Send one record at the limited rate; ``unix_ms`` None: with the present time.

        ``place`` names it in errors. Error: ``NotSent``, of this record or of one before.
        """
        self._keep_rate()
        while len(self._producer) >= _WAITING_MAX:
            self._served(self._producer.poll, 0.1)
        self._check()
        if unix_ms == 0:
            self.restamped += 1  # a timestamp of 0 means the present to this client

        def on_delivery(error: object, _message: object) -> None:
            if error is None:
                self.sent += 1
            else:
                self._fail(f"{place} to {topic}-{partition}: {error}")

        try:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=on_delivery,
                timestamp=unix_ms or 0,
                headers=list(headers),
            )
        except (KafkaException, BufferError) as error:
            self._fail(f"{place} to {topic}-{partition}: {error}")
        self._served(self._producer.poll, 0)
        self._check()

    def finish(self) -> None:
        """Wait until all records are answered. Error: ``NotSent``."""
        left = self._served(self._producer.flush, _DELIVERY_MS_MAX / _MS_PER_S)
        if left:
            raise NotSent(f"{left} records were not answered in {_DELIVERY_MS_MAX} ms")
        self._check()

    def abandon(self) -> None:
        """Drop unsent records; those already sent may still be stored."""
        self._producer.purge()

    def _served(self, serve: Callable[[float], int], seconds: float) -> int:
        """Call ``poll`` or ``flush``. Error: ``NotSent`` after a fatal error of the client.

        A refused record ends an ordered producer. The client logs it, and raises its KafkaError,
        which is not an exception and may come as a SystemError: only a bare clause is sure to
        catch it, and nothing may be raised within that.
        """
        try:
            return serve(seconds)
        except:  # noqa: E722 - see above
            if not self._fatal.reason:
                raise
        raise NotSent(self.failures[0] if self.failures else self._fatal.reason)

    def _fail(self, text: str) -> None:
        self.failed += 1
        if len(self.failures) < _FAILURES_SHOWN:
            self.failures.append(text)

    def _check(self) -> None:
        if self._in_order and self.failures:
            raise NotSent(self.failures[0])

    def _keep_rate(self) -> None:
        """Wait for this record's turn; idle time gives no credit for faster sending later."""
        if not self._rate_per_s:
            return
        while (left_ms := self._due_ms - self._clock.monotonic_ms()) > 0:
            self._served(self._producer.poll, 0)
            self._pause.wait(min(left_ms, _PAUSE_MS_MAX) / _MS_PER_S)
        earliest_ms = self._clock.monotonic_ms() - _PAUSE_MS_MAX
        self._due_ms = max(self._due_ms, earliest_ms) + _MS_PER_S / self._rate_per_s
