"""Transfers: effects of an operation in the logs of other shards, each once, in their order.

The source journals an *intent*, with a part for each target and its payload, in the same append as
the operation's own effects. Parts have consecutive numbers for each pair of source and target. A
part is sent when its intent is durable, until the target has answered. The target stores the number
in the same append as the effect, and applies exactly the next one; so one integer for each pair is
all that it has to remember. When all parts are answered, the source journals the end.

Both sides journal keyed values, each in its own shard; keys begin with a letter:

    i, id (u64)       an intent: for each part target (u16), number (u64), size (u32), payload
    n, target (u16)   the last number given to that target (u64)
    a, source (u16)   the last number applied of that source (u64)

After a restart, or in another node that takes the shard, the journal alone gives the same state.
The rules are those of ``tests/models/shards.py``.
"""

import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice, takewhile
from typing import Final, NamedTuple

Item = tuple[bytes, bytes | None]
"""Key and value for the journal; without a value the key is removed."""

_INTENT: Final = b"i"
_NUMBER: Final = b"n"
_APPLIED: Final = b"a"
_U16: Final = struct.Struct(">H")
_U64: Final = struct.Struct(">Q")
_PART: Final = struct.Struct(">HQI")


class Effect(NamedTuple):
    """Effect of an operation in one other shard."""

    target: int
    payload: bytes


class Part(NamedTuple):
    """Effect with its number among all of its source and target."""

    target: int
    number: int
    payload: bytes


class Intent:
    """Journaled transfer. ``unanswered``: the targets that have not applied their part."""

    __slots__ = ("intent_id", "is_durable", "parts", "unanswered")

    def __init__(self, intent_id: int, parts: Sequence[Part]) -> None:
        self.intent_id = intent_id
        self.parts = parts
        self.unanswered = {part.target for part in parts}
        self.is_durable = False

    @property
    def size_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum(len(part.payload) for part in self.parts)


class Outgoing:
    """Transfers of one source shard that have not ended."""

    def __init__(self, values: Mapping[bytes, bytes] | None = None) -> None:
        """``values``: the journal of the shard; all in it are durable, and are sent again."""
        self.size_bytes = 0
        self._numbers: dict[int, int] = {}
        self._open: dict[int, deque[tuple[Intent, Part]]] = {}  # by target, in order
        self._last_id = 0
        for key, value in sorted((values or {}).items()):
            if key[:1] == _NUMBER:
                self._numbers[_U16.unpack(key[1:])[0]] = _U64.unpack(value)[0]
            elif key[:1] == _INTENT:
                self._restore(_U64.unpack(key[1:])[0], decode_parts(value))

    def _restore(self, intent_id: int, parts: Sequence[Part]) -> None:
        intent = Intent(intent_id, parts)
        intent.is_durable = True
        self._add(intent)

    def _add(self, intent: Intent) -> None:
        self._last_id = max(self._last_id, intent.intent_id)
        self.size_bytes += intent.size_bytes
        for part in intent.parts:
            self._open.setdefault(part.target, deque()).append((intent, part))

    def is_open(self, target: int) -> bool:
        """Return whether a transfer to a target is not known to be applied."""
        return target in self._open

    @property
    def open_targets(self) -> list[int]:
        """Targets of open transfers, ascending."""
        return sorted(self._open)

    @property
    def open_intents(self) -> set[int]:
        """Ids of the intents that have not ended."""
        return {intent.intent_id for some in self._open.values() for intent, _ in some}

    def begin(self, effects: Sequence[Effect]) -> tuple[Intent, list[Item]]:
        """Number effects, one for each target; return the intent and its items for the journal.

        The items are appended together with the operation's own effects. ``kept`` or ``undo``
        follows.
        """
        parts = [
            Part(one.target, self._numbers.get(one.target, 0) + 1, one.payload)
            for one in effects
        ]
        intent = Intent(self._last_id + 1, parts)
        self._add(intent)
        items: list[Item] = [(_INTENT + _U64.pack(intent.intent_id), encode_parts(parts))]
        for part in parts:
            self._numbers[part.target] = part.number
            items.append((_NUMBER + _U16.pack(part.target), _U64.pack(part.number)))
        return intent, items

    def undo(self, intent: Intent) -> None:
        """Forget an intent whose append was refused.

        With a later one on its way the log has failed, and the node stops: then nothing more is
        sent, since what comes before is not durable.
        """
        if any(self._numbers[part.target] != part.number for part in intent.parts):
            return
        self.size_bytes -= intent.size_bytes
        for part in intent.parts:
            self._numbers[part.target] = part.number - 1
            self._open[part.target].pop()
            self._forget_empty(part.target)

    def kept(self, intent: Intent) -> None:
        """Note that an intent is durable: its parts may be sent."""
        intent.is_durable = True

    def to_send(self, target: int, *, count_max: int) -> list[Part]:
        """Return the first parts for a target that are durable and not answered, in order."""
        first = islice(self._open.get(target, ()), count_max)
        return [part for _, part in takewhile(_is_durable, first)]

    def answered(self, target: int, number: int) -> list[Item]:
        """Note that a target has applied all up to a number; return the ends of intents."""
        items: list[Item] = []
        waiting = self._open.get(target)
        while waiting and waiting[0][1].number <= number:
            intent, _ = waiting.popleft()
            intent.unanswered.discard(target)
            if not intent.unanswered:
                self.size_bytes -= intent.size_bytes
                items.append((_INTENT + _U64.pack(intent.intent_id), None))
        self._forget_empty(target)
        return items

    def _forget_empty(self, target: int) -> None:
        if not self._open.get(target, True):
            del self._open[target]


def _is_durable(one: tuple[Intent, Part]) -> bool:
    return one[0].is_durable


class Verdict(Enum):
    """Decision about a part that has come."""

    APPLY = "apply"
    """Apply it: it is the next one."""
    APPLIED = "applied"
    """Answer it, and do nothing else: it is durable."""
    PENDING = "pending"
    """Answer it when it is durable: it is on its way into the log."""
    EARLY = "early"
    """Ignore it: one before it is missing, and it will be sent again."""
    ZOMBIE = "zombie"
    """Refuse it: its sender owned the source in an earlier epoch."""


class Incoming:
    """Numbers of the transfers that one target shard has applied."""

    def __init__(self, values: Mapping[bytes, bytes] | None = None) -> None:
        """``values``: the journal of the shard."""
        self._applied = {
            _U16.unpack(key[1:])[0]: _U64.unpack(value)[0]
            for key, value in (values or {}).items()
            if key[:1] == _APPLIED
        }
        self._durable = dict(self._applied)
        self._epochs: dict[int, int] = {}

    def judge(self, source: int, epoch: int, number: int, *, epoch_known: int = 0) -> Verdict:
        """Decide about a part. ``epoch_known``: the source's epoch, as this node knows it."""
        epoch_min = max(self._epochs.get(source, 0), epoch_known)
        if epoch < epoch_min:
            return Verdict.ZOMBIE
        self._epochs[source] = epoch
        if number <= self._durable.get(source, 0):
            return Verdict.APPLIED
        applied = self._applied.get(source, 0)
        if number <= applied:
            return Verdict.PENDING
        return Verdict.APPLY if number == applied + 1 else Verdict.EARLY

    def begin(self, source: int, number: int) -> list[Item]:
        """Return the number for the journal, in the same append as the effect."""
        self._applied[source] = number
        return [(_APPLIED + _U16.pack(source), _U64.pack(number))]

    def undo(self, source: int, number: int) -> None:
        """Forget a number whose append was refused, and with it all later ones."""
        self._applied[source] = min(self._applied[source], number - 1)

    def kept(self, source: int, number: int) -> None:
        """Note that a number is durable, and with it the effect."""
        self._durable[source] = number


def intent_ids_of(items: Iterable[Item]) -> list[int]:
    """Return the ids of the intents whose ends ``Outgoing.answered`` has returned."""
    return [_U64.unpack(key[1:])[0] for key, _ in items]


def encode_parts(parts: Iterable[Part]) -> bytes:
    r"""Return an intent's value.

    >>> decode_parts(encode_parts([Part(1, 7, b"x"), Part(2, 1, b"")]))
    [Part(target=1, number=7, payload=b'x'), Part(target=2, number=1, payload=b'')]
    """
    return b"".join(
        _PART.pack(part.target, part.number, len(part.payload)) + part.payload for part in parts
    )


def decode_parts(data: bytes) -> list[Part]:
    """Return the parts of an intent's value."""
    parts = []
    at = 0
    while at < len(data):
        target, number, size = _PART.unpack_from(data, at)
        at += _PART.size
        parts.append(Part(target, number, data[at : at + size]))
        at += size
    return parts
