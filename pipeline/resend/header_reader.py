"""Reading of the headers of a topic's records, from given offsets to its current end."""

from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from gateway.clock import Clock
from pipeline.resend.endpoint import ANSWER_S_MAX, Endpoint, Headers

_QUIET_MS_MAX: Final = 30_000
_POLL_S: Final = 0.2
_READ_AT_ONCE: Final = 5_000


class HeaderReader:
    """Reader of a topic's headers from given offsets to its current end."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._clock = clock
        self._consumer = Consumer(
            endpoint.client_config()
            | {
                "group.id": "headgate.resend",  # the group never commits
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",  # below the start: retention removed the rest
            }
        )

    def ends(self, places: Iterable[TopicPartition]) -> dict[int, int]:
        """Return the end of each partition. Error: ``KafkaException``."""
        return {
            place.partition: self._consumer.get_watermark_offsets(place, timeout=ANSWER_S_MAX)[
                1
            ]
            for place in places
        }

    def headers(
        self,
        places: Iterable[TopicPartition],
        floors: Mapping[int, int],
        ends: Mapping[int, int],
    ) -> Iterable[Headers]:
        """Yield the headers of each record. Error: ``KafkaException``."""
        begins = [
            TopicPartition(place.topic, place.partition, floors.get(place.partition, 0))
            for place in places
        ]
        open_places = {one.partition for one in begins if one.offset < ends[one.partition]}
        self._consumer.assign([one for one in begins if one.partition in open_places])
        heard_ms = self._clock.monotonic_ms()
        while open_places:
            messages = self._consumer.consume(_READ_AT_ONCE, _POLL_S)
            if messages:
                heard_ms = self._clock.monotonic_ms()
            elif self._clock.monotonic_ms() - heard_ms > _QUIET_MS_MAX:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - its name
            for message in messages:
                error = message.error()
                if error is None:
                    yield message.headers() or ()
                elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                    if error.fatal() or (error.code() > 0 and not error.retriable()):
                        raise KafkaException(error)
                    continue  # a broken connection, which is opened again
                # The partition's end ends the range, too, if compaction removed its last record.
                if error is not None or message.offset() + 1 >= ends[message.partition()]:
                    open_places.discard(message.partition())

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
