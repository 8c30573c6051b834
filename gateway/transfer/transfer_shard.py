"""Transfers of one shard, while this node serves it."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection

from features.transfer import Incoming, Outgoing
from gateway.streams import InternalStream
from gateway.transfer.receiving import Waiting

OnApplied = Callable[[int], None]


class TransferShard:
    """Transfers from and to one shard, while this node serves it."""

    def __init__(self, number: int, epoch: int, stream: InternalStream) -> None:
        self.number = number
        self.epoch = epoch
        self.stream = stream
        self.outgoing = Outgoing(stream.values)
        self.incoming = Incoming(stream.values)
        self.waiting: Waiting = {}
        self.in_flight: defaultdict[int, set[int]] = defaultdict(set)
        self.followers: dict[int, list[OnApplied]] = {}  # by intent
        self.retries: dict[int, asyncio.TimerHandle] = {}
        self.refusals: defaultdict[int, int] = defaultdict(int)
        """Pauses in a row, by target, after which nothing was taken."""

    def follow(self, intent_ids: Collection[int], on_applied: Callable[[], None]) -> None:
        """Call back when some intents, of which there is one at least, have ended."""
        left = set(intent_ids)

        def ended(intent_id: int) -> None:
            left.discard(intent_id)
            if not left:
                on_applied()

        for intent_id in intent_ids:
            self.followers.setdefault(intent_id, []).append(ended)

    def stop(self) -> None:
        """Send nothing again."""
        for timer in self.retries.values():
            timer.cancel()
        self.retries.clear()
