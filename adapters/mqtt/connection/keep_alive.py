"""Keep alive: a client is gone after silence of one and a half times of it (MQTT-3.1.2-22).

There is no timer per connection: the listener's sweep checks all of them, by a monotonic time
that leaves out pauses of this process.
"""

from typing import Final

from adapters.mqtt.wire import Version
from gateway.listener import SWEEP_S

_GRACE: Final = 1.5


def agree(version: Version, asked_s: int, *, s_max: int, unlimited_s: int) -> int:
    """Return the keep alive that holds, in seconds; 0 is none.

    A 5.0 client is informed when the value differs from the requested one (MQTT-3.2.2-21). A 3.x
    client cannot be informed and gets the requested value. With an ``s_max`` of ``unlimited_s``
    nothing is limited, so a client may ask for no keep alive.
    """
    if version is not Version.V5 or s_max >= unlimited_s:
        return asked_s
    return min(asked_s, s_max) if asked_s else s_max


def silence_s_max(keep_alive_s: int) -> float | None:
    """Return after how many seconds of silence the connection is closed; None: never.

    The clock of a listener moves once per sweep, so a packet may seem older than it is by one
    sweep. The returned time includes that, so that no client is closed too early.
    """
    return keep_alive_s * _GRACE + SWEEP_S if keep_alive_s else None
