"""The words of the queue block. Offsets are a partition's; times are unix milliseconds."""

from enum import Enum, IntEnum
from typing import Final, NamedTuple

AT_ONCE: Final = 0  # as ``Run.visible_unix_ms``
BY_TIME: Final = 0  # as a holder: nothing but the lease's end gives back what it took
ATTEMPTS: Final = "attempts"  # as a reason: it was handed out as often as the policy allows
DELIVERY_LIMIT: Final = "delivery_limit"  # as a reason: it has failed more often than that
NO_LIMIT: Final = -1  # as ``Policy.delivery_limit``

DEAD_MAX: Final = 256  # that die of their attempts in one call, unless it says otherwise


class Order(Enum):
    """Order of delivery."""

    NONE = "none"  # the lowest offset; keys mean nothing
    KEY = "key"  # the lowest offset of a key none of whose messages is in flight
    FAIR = "fair"  # messages of quiet keys (tenants) before those of noisy ones
    PRIORITY = (
        "priority"  # the highest priority, then the lowest offset; the key is the priority
    )


class RetryOn(Enum):
    """Deliveries after which a message comes back with a delay."""

    FAILED = "failed"
    RETURNED = "returned"  # given back without having failed
    ALL = "all"


class Policy(NamedTuple):
    """Settings of a queue. They may change at any time.

    ``attempts_max``: deliveries after which a requeued message is dead instead of delivered
    again; 0 for no limit. ``delivery_limit``: failed deliveries that are allowed; a message that
    fails once more is dead at once.
    ``retry_delay_ms``: time until a message that comes back is visible, as often as it was
    delivered, at most ``retry_delay_ms_max`` (0 for no limit); see ``features.queue.retrying``.
    ``lookahead``: runs of one key known beyond ``next``. ``in_flight_max``: messages of one lane
    in flight at a time.
    """

    order: Order = Order.NONE
    attempts_max: int = 0
    lookahead: int = 120_000
    in_flight_max: int = 120_000
    delivery_limit: int = NO_LIMIT
    retry_delay_ms: int = 0
    retry_delay_ms_max: int = 0
    retry_delay_on: RetryOn = RetryOn.ALL


class Run(NamedTuple):
    """Contiguous messages of one key, ``first`` to ``last`` inclusive, visible from a time on."""

    first: int
    last: int
    key: bytes | None
    visible_unix_ms: int = AT_ONCE


class Taken(NamedTuple):
    """A message that was handed out. ``attempt`` counts from 1."""

    offset: int
    attempt: int
    first_taken_unix_ms: int


class TakenRange(NamedTuple):
    """Contiguous messages of one key that were handed out together, and equally often.

    ``attempt`` counts from 1, and is part of each message's delivery id. ``failed_count``: earlier
    deliveries that failed; the others were given back without that.
    """

    offsets: range
    attempt: int
    first_taken_unix_ms: int
    failed_count: int = 0


class Outcome(Enum):
    """Outcome of a message, given by its receiver."""

    ACK = "ack"
    RELEASE = "release"  # back to the queue, at once or when a delay is over: it has failed
    REQUEUE = "requeue"  # as a release, but it has not failed: the delivery limit counts it not
    RETURN = "return"  # as a release, but the attempt does not count: nobody has seen it
    REJECT = "reject"  # to the dead letters, or dropped where there are none


class HeldRange(NamedTuple):
    """Contiguous messages in flight for one holder, handed out by one attempt."""

    offsets: range
    attempt: int


class SettledRange(NamedTuple):
    """Contiguous messages handed out by one attempt, and their outcome."""

    offsets: range
    attempt: int
    outcome: Outcome


class LapsedRange(NamedTuple):
    """Contiguous messages whose lease has ended, which their holder has not any more."""

    holder: int
    offsets: range
    attempt: int


class Dead(NamedTuple):
    """A message to be moved to the dead letters, or to be dropped where there are none.

    It is in flight for nobody until ``Lane.moved``, ``Lane.move_failed`` or ``Lane.not_moved`` says
    how that ended. ``is_again``: it could not be moved before.
    """

    offset: int
    attempts: int
    reason: str
    is_again: bool = False


class Result(IntEnum):
    """Result of settling or extending one delivery id (offset, attempt)."""

    DONE = 0
    GONE = 1  # settled before, or never handed out
    STALE = 2  # handed out again since, or its lease has ended and it waits to be


class Counts(NamedTuple):
    """Messages of a lane by state."""

    ready: int  # could be handed out, or wait for their key
    in_flight: int
    delayed: int


class ContiguousTake(NamedTuple):
    """First take of contiguous messages without a key, as the journal has to record it."""

    offsets: range
    is_held: bool
    due_unix_ms: int
    now_unix_ms: int
    next_offset: int


class Effects:
    """Effects of a call, for the caller to carry out; journal entries in order of calls.

    ``journal``: an entry, or None when nothing is to be written. ``taken`` and ``done`` are to be
    written too, and are changes of many calls in one: see ``journal.entry_of``. ``dead``:
    messages to move. ``wake``: there may be new messages to hand out.
    """

    __slots__ = ("dead", "done", "journal", "taken", "wake")

    def __init__(
        self,
        journal: bytes | None = None,
        dead: list[Dead] | None = None,
        *,
        taken: ContiguousTake | None = None,
        wake: bool = False,
    ) -> None:
        self.journal = journal
        self.taken = taken
        self.done: list[range] = []
        self.dead: list[Dead] = [] if dead is None else dead
        self.wake = wake
