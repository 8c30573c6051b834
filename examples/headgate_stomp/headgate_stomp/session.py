"""Order of frames, versions and heart-beats of a session. Pure."""

from enum import Enum
from typing import Final, NamedTuple

from headgate_stomp.errors import StompFault
from headgate_stomp.frames import Version

SUPPORTED: Final = ",".join(map(str, Version))
_HEART_BEAT_DIGITS_MAX: Final = 9


class State(Enum):
    """State of a session."""

    AWAIT_CONNECT = "await_connect"
    CONNECTED = "connected"
    CLOSED = "closed"


def check_command(state: State, command: str) -> None:
    """Check that a command may come now. Error: ``StompFault``."""
    is_first = command in {"CONNECT", "STOMP"}
    if is_first != (state is State.AWAIT_CONNECT):
        text = "already connected" if is_first else f"{command} before CONNECT"
        raise StompFault("Illegal command", text)


def agree_version(headers: dict[str, str]) -> Version:
    """Return the highest common version. Error: ``StompFault`` when there is none.

    >>> agree_version({"accept-version": "1.0,1.1,2.0"})
    <Version.V11: 11>
    """
    offered = headers.get("accept-version", str(Version.V10)).replace(" ", "").split(",")
    common = [version for version in Version if str(version) in offered]
    if not common:
        raise StompFault("Version mismatch", f"Supported versions are {SUPPORTED}")
    return max(common)


class HeartBeats(NamedTuple):
    """Milliseconds between signs of life; 0 for none."""

    sent_ms: int  # by the gateway
    received_ms: int  # by the client


def agree_heart_beats(text: str | None, *, ms_min: int) -> HeartBeats:
    """Return how often either side sends something. Error: ``StompFault``.

    ``ms_min``: the shortest span that the gateway sends or expects; 0 for no heart-beats.

    >>> agree_heart_beats("500,60000", ms_min=1_000)
    HeartBeats(sent_ms=60000, received_ms=1000)
    """
    parts = (text or "0,0").split(",")
    are_numbers = all(
        part.isascii() and part.isdigit() and len(part) <= _HEART_BEAT_DIGITS_MAX
        for part in parts
    )
    if len(parts) != len(HeartBeats._fields) or not are_numbers:
        raise StompFault("Bad CONNECT", f"heart-beat {(text or '')[:40]!r} is not two numbers")
    sends_ms, wants_ms = map(int, parts)
    return HeartBeats(
        max(wants_ms, ms_min) if wants_ms and ms_min else 0,
        max(sends_ms, ms_min) if sends_ms and ms_min else 0,
    )
