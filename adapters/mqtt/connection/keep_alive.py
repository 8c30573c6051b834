"""Keep alive: who is silent for one and a half times of it is gone (MQTT-3.1.2-22).

There is no timer per connection: the listener's sweep looks at all of them, by a monotonic time
that does not count while this process stood still.
"""

from typing import Final

from adapters.mqtt.wire import Version
from gateway.listener import SWEEP_S

_GRACE: Final = 1.5


def agree(version: Version, asked_s: int, *, s_max: int, unlimited_s: int) -> int:
    """Return the keep alive that holds, in seconds; 0 is none.

    A 5.0 client is told when it differs from what it asked for (MQTT-3.2.2-21); one of 3.x can
    be told nothing and gets what it asked for. ``unlimited_s`` is the ``s_max`` that limits
    nothing, so that a client may then ask for none.
    """
    if version is not Version.V5 or s_max >= unlimited_s:
        return asked_s
    return min(asked_s, s_max) if asked_s else s_max


def silence_s_max(keep_alive_s: int) -> float | None:
    """Return after how many seconds of silence the connection is closed; None: never.

    The clock of a listener moves once per sweep, so that a packet may look older than it is by
    one: no client is closed too early.
    """
    return keep_alive_s * _GRACE + SWEEP_S if keep_alive_s else None
