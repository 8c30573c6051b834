"""Catching up: all followers that are behind on one feed read its log together.

Each step reads a piece of the log and serves every ready follower whose position is in that piece
(``shared_scans``). So ten thousand sessions that come back together read the log once. Only
records that one of them may want are decoded; where the storage has an index of keys, batches
without such records are not read (``key_lookup``). Steps are cut into slices; between two slices
the loop serves live traffic.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from adapters.mqtt.delivery.ended_index import AnyMatch, EndedIndex, Offer, common, match_at
from adapters.mqtt.ports import Follower, Subscriber, SubscriberMatch
from adapters.mqtt.reading.feed import RETRY_S, Feed
from adapters.mqtt.reading.key_lookup import KeyLookup, ReadSpans
from adapters.mqtt.reading.pacing import Pace
from adapters.mqtt.reading.shared_scans import SharedScan, SharedScans
from adapters.mqtt.reading.slow_receiver import SlowReceiver
from adapters.mqtt.reading.wanted_topics import WantedTopics
from adapters.mqtt.records.mixed_topic_batch import MixedTopicBatch, end_offset
from adapters.mqtt.subscriptions.trie import Match
from adapters.mqtt.wire import PublishRun
from gateway.errors import GatewayError, OffsetOutOfRange
from gateway.model import Buffer, parse_batch_header

READ_BYTES_MAX: Final = 1_048_576
SPANS_MAX: Final = 16  # read for one piece: what lies between them is not wanted
SCAN_PIECES: Final = 8  # read by one scan before another has its turn
PIECES_MAX: Final = 4  # kept decoded: receivers with small windows read them again
PIECE_BYTES_MAX: Final = 4_194_304  # of payloads; a larger piece is not kept
WANTED_SPARE: Final = 1_000  # followers that have left, whose filters are still in use

log = structlog.get_logger()


class Matcher(Protocol):
    """Subscribers of a topic; ``ended``: subscriptions that have ended."""

    ended: EndedIndex

    def matches_by_follower(self, topic: bytes) -> "dict[Subscriber, SubscriberMatch]":
        """Return the matches of a topic by subscriber."""
        ...


class _Piece(NamedTuple):
    """Decoded records of [start, end) that followers up to ``revision`` of ``wanted`` may want."""

    start: int
    end: int
    runs: list[PublishRun | MixedTopicBatch]
    wanted: WantedTopics
    revision: int


class CatchUp:
    """The followers of one feed that are behind and ready.

    Below ``_horizon`` only the filters in ``_wanted`` count: a later subscription of a follower
    begins at the live end.
    """

    def __init__(self, feed: Feed, matcher: Matcher, pace: Pace | None = None) -> None:
        self.feed = feed
        self.records_scanned = 0
        self._matcher = matcher
        self._pace = pace or Pace()
        self._scans = SharedScans(feed.partition_id)
        self._served: dict[Follower, None] = {}  # of the scan that is served
        self._task: asyncio.Task[None] | None = None
        self._wanted = WantedTopics()
        self._spans = KeyLookup(feed)
        self._horizon = feed.live_offset
        self._pieces: deque[_Piece] = deque(maxlen=PIECES_MAX)

    def add(self, follower: "Follower") -> None:
        """Serve a follower that is behind on this feed; repeated calls are harmless."""
        if follower in self._scans or not follower.is_ready:
            return
        if not len(self._wanted):
            self._forget()
        self._scans.add(follower, self._wanted.add(follower))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def discard(self, follower: "Follower") -> None:
        """Serve a follower no more; its client or its subscriptions have gone."""
        self._scans.remove(follower)
        self._leave(follower)

    def close(self) -> None:
        """Stop serving followers."""
        if self._task is not None:
            self._task.cancel()
        self._scans.clear()
        self._forget()

    async def _run(self) -> None:
        try:
            while (scan := self._scans.take()) is not None:
                try:
                    await self._go(scan)
                finally:
                    self._scans.put_back(scan)
        finally:
            self._task = None

    async def _go(self, scan: SharedScan) -> None:
        for _ in range(SCAN_PIECES):
            if not (await self._is_behind(scan) and await self._step_or_wait(scan)):
                return

    async def _step_or_wait(self, scan: SharedScan) -> bool:
        """Take a step; after an error wait ``RETRY_S``, and return False: others are served."""
        try:
            await self._step(scan)
        except GatewayError as error:
            log.warning(
                "catching up", topic=self.feed.partition.topic.name.name, error=str(error)
            )
            await asyncio.sleep(RETRY_S)
        except Exception:  # a bug met by one follower must not stop the others
            log.exception("catching up", topic=self.feed.partition.topic.name.name)
            await asyncio.sleep(RETRY_S)
        else:
            return True
        return False

    async def _is_behind(self, scan: SharedScan) -> bool:
        """Return whether a scan has a ready follower; a full one is added again with room."""
        if scan.offset >= self.feed.live_offset:
            async with self._pace:
                await self._join_live(scan)
        while scan.followers:
            follower = next(iter(scan.followers))
            if follower.is_ready and self.feed.partition_id in follower.behind:
                return True
            self._scans.remove(follower)
        return False

    async def _join_live(self, scan: SharedScan) -> None:
        """Let receivers that have caught up go on from the live end, while it is there."""
        for follower in tuple(scan.followers):
            if scan.offset < self.feed.live_offset:
                return
            if follower not in scan.followers:  # it was removed meanwhile
                continue
            self._scans.remove(follower)
            follower.behind.pop(self.feed.partition_id, None)
            self._leave(follower)
            if isinstance(follower, SlowReceiver):
                self.feed.slow_receivers.join(follower)
            if self._pace.is_over:
                await self._pace.rest()

    def _leave(self, follower: "Follower") -> None:
        """Drop the filters of a follower; after the last one, drop the decoded pieces."""
        self._wanted.discard(follower)
        if not len(self._wanted):
            self._forget()

    async def _step(self, scan: SharedScan) -> None:
        """Read at the offset of a scan; serve all followers within what was read."""
        self._skip(scan)
        spare = self._wanted.revision - 4 * len(self._scans)
        if scan.offset >= self._horizon or spare > WANTED_SPARE:
            await self._collect_wanted()
        offset = scan.offset
        piece = self._find_piece(scan)
        if piece is None:
            wanted = self._wanted
            to_read = await self._spans.spans_to_read(
                wanted, scan.newest, offset, self._horizon
            )
            try:
                batches, end = await self._read(to_read, offset)
            except OffsetOutOfRange:
                # Retention deleted it meanwhile: the next turn begins at the log start.
                await asyncio.sleep(0)
                return
            async with self._pace:
                piece = await self._decode(batches, offset, end, wanted, to_read.revision)
        async with self._pace:
            await self._serve(piece, scan)

    def _skip(self, scan: SharedScan) -> None:
        """Move a scan to the start of the log when retention has deleted its offset."""
        partition_id, start = self.feed.partition_id, self.feed.log_start_offset
        if scan.offset >= start:
            return
        for follower in scan.followers:
            offset = max(follower.behind[partition_id], scan.offset)
            if offset < start:
                follower.on_skipped(start - offset)
                follower.behind[partition_id] = start
        scan.offset = start

    # --- reading what is wanted

    def _forget(self) -> None:
        self._wanted = WantedTopics()
        self._spans.forget()
        self._horizon = self.feed.live_offset
        self._pieces.clear()

    async def _collect_wanted(self) -> None:
        """Collect the filters of all followers anew."""
        self._forget()
        async with self._pace:
            for follower in tuple(self._scans):
                if follower in self._scans:
                    self._wanted.add(follower)
                if self._pace.is_over:
                    await self._pace.rest()
        self._scans.renumber(self._wanted.revision - 1)

    def _find_piece(self, scan: SharedScan) -> _Piece | None:
        for piece in self._pieces:
            if piece.start <= scan.offset < piece.end and scan.newest < piece.revision:
                return piece
        return None

    async def _read(self, to_read: ReadSpans, offset: int) -> tuple[list[Buffer], int]:
        """Read batches from ``offset`` on; return them and the offset up to which they are all."""
        batches: list[Buffer] = []
        room_bytes = READ_BYTES_MAX
        for start, end in to_read.spans[:SPANS_MAX]:
            begin = max(start, offset)
            found = await self.feed.read_batches(begin, bytes_max=room_bytes, end=end)
            batches += found
            upto = parse_batch_header(found[-1]).last_offset + 1 if found else end
            self.records_scanned += min(upto, end) - begin
            room_bytes -= sum(map(len, found))
            if upto < end or room_bytes <= 0:
                return batches, min(upto, end)
        rest = to_read.spans[SPANS_MAX : SPANS_MAX + 1]
        return batches, rest[0][0] if rest else to_read.end

    async def _decode(
        self,
        batches: Sequence[Buffer],
        offset: int,
        end: int,
        wanted: WantedTopics,
        revision: int | None,
    ) -> _Piece:
        """Decode the wanted records of all batches that are to be read in [offset, end)."""
        wants = wanted.wants
        if revision is None:
            revision = wanted.revision
        found: list[PublishRun | MixedTopicBatch] = []
        for batch in batches:
            runs = await self.feed.runs_of_large(batch)
            if runs is None:
                runs = self.feed.runs_of(batch, wants)
            # A run that was cut is whole in the cache of each batch.
            found += runs[1:] if found and runs and runs[0] is found[-1] else runs
            if self._pace.is_over:
                await self._pace.rest()
        piece = _Piece(offset, end, found, wanted, revision)
        size_bytes = sum(sum(map(len, run.payloads)) for run in found)
        if found and size_bytes <= PIECE_BYTES_MAX:
            self._pieces.append(piece)
        return piece

    # --- serving

    async def _serve(self, piece: _Piece, scan: SharedScan) -> None:
        """Serve the followers within a piece, from the offset of a scan on."""
        if piece.wanted is not self._wanted:
            return  # the followers that it was read for have left
        self._scans.join(scan, piece.end, piece.revision)
        runs, end, done = piece.runs, piece.end, scan.offset
        going = self._served = scan.followers
        for at in range(max(bisect_right(runs, done, key=_base_offset) - 1, 0), len(runs)):
            run = runs[at]
            if not going or run.base_offset >= end:
                break
            start, stop = max(run.base_offset, done), min(end_offset(run), end)
            if start >= stop:
                continue
            if isinstance(run, MixedTopicBatch):
                await self._offer_mixed_topics(run, start, stop)
            else:
                await self._offer_all(self._offers(run), run, start, stop)
            done = stop
        scan.offset = end
        if end >= self.feed.live_offset:
            await self._join_live(scan)

    async def _offer_all(
        self, offers: "list[Offer]", run: PublishRun, start: int, stop: int
    ) -> None:
        while offers:
            self._offer(offers, run, start, stop)
            if self._pace.is_over:
                await self._pace.rest()

    async def _offer_mixed_topics(self, mixed: MixedTopicBatch, start: int, stop: int) -> None:
        """Offer the messages at offsets [start, stop) to their followers."""
        feed, partition_id, base_offset = self.feed, self.feed.partition_id, mixed.base_offset
        wanting: dict[Follower, dict[PublishRun, AnyMatch]] = {}
        for kind in set(mixed.kinds[start - base_offset : stop - base_offset]):
            for follower, match in self._offers(kind):
                wanting.setdefault(follower, {})[kind] = match
        for follower, matches in wanting.items():
            first = max(follower.behind.get(partition_id, stop), start)
            if first >= stop or follower not in self._served:
                continue
            indexes = range(first - base_offset, stop - base_offset)
            plain = {kind: one for kind, one in matches.items() if isinstance(one, Match)}
            taken = None
            if len(plain) == len(matches):
                taken = follower.take_mixed_topics(mixed, indexes, plain, feed)
            if taken is None:
                await self._offer_each(mixed.runs(indexes), mixed, follower, matches)
                continue
            follower.behind[partition_id] = base_offset + taken
            if base_offset + taken < stop:
                self._scans.remove(follower)  # it is full, and added again when it has room
            if self._pace.is_over:
                await self._pace.rest()

    async def _offer_each(
        self,
        runs: Iterable[PublishRun],
        mixed: MixedTopicBatch,
        follower: "Follower",
        matches: "Mapping[PublishRun, AnyMatch]",
    ) -> None:
        """Offer mixed-topic messages, each by itself, to a follower that wants some of them."""
        for run in runs:
            match = matches.get(mixed.kinds[run.base_offset - mixed.base_offset])
            if match is not None and follower in self._served:
                at = run.base_offset
                await self._offer_all([(follower, match)], run, at, at + 1)

    def _offers(self, run: PublishRun) -> "list[Offer]":
        """Return the followers of the current scan that want a run."""
        going, ended = self._served, self._matcher.ended
        by_follower = self._matcher.matches_by_follower(run.topic)
        slow_receivers = self.feed.slow_receivers.members
        if ended:
            offers = ended.offers(by_follower, going, run.topic)
        elif len(going) < len(by_follower):
            offers = [(one, by_follower[one]) for one in going if one in by_follower]
        else:
            offers = [(one, match) for one, match in by_follower.items() if one in going]
        for session in common(slow_receivers, by_follower) if slow_receivers else ():
            if (slow_receiver := slow_receivers[session]) in going:
                offers.append((slow_receiver, slow_receiver.match_of(by_follower[session])))
        return offers

    def _offer(self, offers: "list[Offer]", run: PublishRun, start: int, stop: int) -> None:
        """Offer messages of a run at offsets [start, stop) until this slice is over."""
        feed, going, pace = self.feed, self._served, self._pace
        partition_id, base_offset = feed.partition_id, run.base_offset
        while offers:
            follower, match = offers.pop()
            behind = follower.behind
            offset = behind.get(partition_id)
            if offset is None or follower not in going:
                continue  # it was removed between two slices
            first = max(offset, start)
            while first < stop:
                at_first, until = match_at(match, partition_id, first, stop)
                taken = until - first
                if at_first is not None:
                    taken = follower.take(
                        run, first - base_offset, until - base_offset, at_first, feed
                    )
                first += taken
                behind[partition_id] = first
                if first < until:
                    self._scans.remove(follower)
                    break
            if pace.is_over:
                break


def _base_offset(run: PublishRun | MixedTopicBatch) -> int:
    return run.base_offset
