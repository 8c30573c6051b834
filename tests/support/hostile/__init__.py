"""Requests of faulty and hostile clients of each protocol, before and after a login."""

import random
from collections.abc import Callable, Mapping
from typing import Final

from tests.support.hostile import admin, kafka, mqtt, sqs_signed
from tests.support.hostile.throwing import Speech
from tests.support.hostile.users import User

KAFKA: Final = "kafka"
MQTT: Final = "mqtt"
SQS: Final = "sqs"
ADMIN: Final = "admin"

Words = Callable[[random.Random, User | None], list[bytes]]
_WORDS: Final[Mapping[str, tuple[Words, Callable[[bytes], bool]]]] = {
    KAFKA: (kafka.words, kafka.is_answered),
    MQTT: (mqtt.words, mqtt.is_answered),
    SQS: (sqs_signed.words, sqs_signed.is_answered),
    ADMIN: (admin.words, sqs_signed.is_answered),
}
PROTOCOLS: Final = tuple(_WORDS)


def speech(protocol: str, user: User | None) -> Speech:
    """Return what clients of a protocol say who log in as ``user``, or never log in."""
    words, is_answered = _WORDS[protocol]
    return Speech(lambda chooser: words(chooser, user), is_answered)
