"""Packet identifiers that end early: what takes 65,535 messages else."""

import contextlib
from collections.abc import Iterator

import pytest

from adapters.mqtt.delivery import publish_forms
from adapters.mqtt.inflight import outbox


@contextlib.contextmanager
def few_identifiers(count: int) -> Iterator[None]:
    """Give out packet identifiers from 1 to ``count``."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (outbox, publish_forms):
            patch.setattr(module, "PACKET_ID_MAX", count)
        publish_forms._packet_ids.cache_clear()
        yield
    publish_forms._packet_ids.cache_clear()
