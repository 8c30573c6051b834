"""Runs of the objects that MQTT publishers append beside a live batch."""

from collections.abc import Sequence
from typing import Final

from adapters.mqtt.records.one_in_flight_messages import OneInFlightMessages
from adapters.mqtt.wire import MixedTopicPublishes, PublishRun
from gateway.model import DELIVER_AT

_MANY: Final = (
    OneInFlightMessages,
    MixedTopicPublishes,
)  # natives that make their runs on demand


def runs_of_native(native: object) -> Sequence[PublishRun]:
    """Return the runs of one appended object, in the order of their offsets."""
    if isinstance(native, _MANY):
        return native.runs()
    assert isinstance(native, PublishRun)
    return (native,)


def were_live(natives: Sequence[tuple[int, object]]) -> bool:
    """Return whether all messages of a batch were delivered live: no runs are made then."""
    return all(
        type(native) is MixedTopicPublishes and native.live_number for _, native in natives
    )


def was_live(run: PublishRun) -> bool:
    """Return whether messages of the log were published by MQTT, and not by ``$delayed/``.

    Delayed messages have a header that no publisher can set.
    """
    properties = run.properties.user_properties
    return bool(run.client_id) and all(name != DELIVER_AT for name, _ in properties)
