"""The records of a batch as runs, or as mixed_topics where topics take turns. The hot path back."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from adapters.mqtt.records.mixed_topic_batch import (
    MIXED_TOPICS_BYTES_MAX,
    MIXED_TOPICS_MAX,
    MixedTopicBatch,
)
from adapters.mqtt.records.record_columns import FieldPositions, slice_record, stretch_of
from adapters.mqtt.records.record_kinds import begin_run, is_wanted, kind_of
from adapters.mqtt.records.record_skipping import TOPIC_BYTES, skip_records
from adapters.mqtt.route_config import RouteConfig
from adapters.mqtt.wire import PublishRun
from gateway.model import BatchHeader

_EMPTY_RECORD_BYTES: Final = 7
_STRETCH_AFTER: Final = 4  # records of one form, before it is tried to read more at once

_Kind = tuple[bytes | None, bytes, bool]  # key, headers, whether the value is null


class BatchReading:
    """The records of one batch, read once. Errors of all: ``IndexError``, ``CorruptBatch``."""

    def __init__(
        self,
        data: bytes,
        header: BatchHeader,
        route: RouteConfig,
        skipped: Counter[str],
        wants: Callable[[bytes], bool] | None,
    ) -> None:
        if not 0 <= header.record_count <= len(data) // _EMPTY_RECORD_BYTES:
            raise IndexError(f"{header.record_count} records in {len(data)} bytes")
        self._data = data
        self._header = header
        self._route = route
        self._skipped = skipped
        self._wants = wants
        self._may_name_topics = wants is not None and TOPIC_BYTES in data
        self._mixes = False
        self._from_offset = 0
        self._runs: list[PublishRun | MixedTopicBatch] = []
        self._payloads: list[bytes] = []  # of the last run
        self._shared: _Kind | None = None  # by its records
        self._position, self._offset_delta, self._left = 0, -1, header.record_count

    def runs(self, from_offset: int, *, mixes: bool) -> list[PublishRun | MixedTopicBatch]:
        """Return what lies at or after an offset; mixed_topics only if it ``mixes``."""
        self._from_offset, self._mixes = from_offset, mixes
        while self._left:
            self._take()
        if (
            self._position != len(self._data)
            or self._offset_delta > self._header.last_offset_delta
        ):
            raise IndexError(f"{len(self._data) - self._position} bytes after the last record")
        return self._runs

    def _take(self) -> None:
        """Take the next record, and those that are as it is."""
        start, previous_delta = self._position, self._offset_delta
        offset_delta, key, value, positions = slice_record(self._data, start)
        self._position = end = positions[-1]
        self._offset_delta = offset_delta
        self._left -= 1
        if not previous_delta < offset_delta <= self._header.last_offset_delta:
            raise IndexError(f"offset delta {offset_delta}")
        if self._header.base_offset + offset_delta < self._from_offset:
            return
        kind = (key, self._data[positions[-2] : end], value is None)
        follows = offset_delta == previous_delta + 1
        if not (follows and kind == self._shared) and not self._begin(
            kind, start, follows=follows
        ):
            return
        self._payloads.append(value or b"")
        if self._left and value is not None and len(self._payloads) >= _STRETCH_AFTER:
            self._take_stretch(start, positions)

    def _take_stretch(self, start: int, positions: FieldPositions) -> None:
        # As many as there are already: what is read in vain stays below what was of use.
        count_max = min(self._left, len(self._payloads))
        stretch = stretch_of(self._data, start, self._offset_delta, positions, count_max)
        self._payloads += stretch
        self._position += len(stretch) * (self._position - start)
        self._offset_delta += len(stretch)
        self._left -= len(stretch)

    def _begin(self, kind: _Kind, start: int, *, follows: bool) -> bool:
        """Begin a run with the record of that kind at ``start``; False when it is in none."""
        key, block, is_null = kind
        wants = self._wants
        if wants is not None and not is_wanted(key, block, wants):
            self._shared = None
            self._position, self._left = skip_records(
                self._data,
                self._position,
                self._left,
                wants,
                may_name_topics=self._may_name_topics,
            )
            return False
        is_short = self._shared is not None and len(self._payloads) < _STRETCH_AFTER
        if self._mixes and follows and is_short and self._take_mixed_topics(start):
            return False
        offset = self._header.base_offset + self._offset_delta
        run = begin_run(key, block, self._route, offset, self._skipped, is_null=is_null)
        self._shared = kind if run is not None else None
        if run is None:
            return False
        self._payloads = run.payloads
        self._runs.append(run)
        return True

    def _take_mixed_topics(self, position: int) -> bool:
        """Take messages of kinds that take turns from the record on that was sliced last.

        They end before one that nobody wants, that is no message or an odd one, before a gap,
        and where a kind comes again and again. False when there are not two.
        """
        kinds: list[PublishRun] = []
        payloads: list[bytes] = []
        data, route, wants, first_delta = (
            self._data,
            self._route,
            self._wants,
            self._offset_delta,
        )
        last, alike, room_bytes = None, 0, MIXED_TOPICS_BYTES_MAX
        for delta in range(first_delta, first_delta + min(self._left + 1, MIXED_TOPICS_MAX)):
            found_delta, key, value, positions = slice_record(data, position)
            if found_delta != delta or delta > self._header.last_offset_delta or value is None:
                break
            kind = kind_of(key, data[positions[-2] : positions[-1]], route)
            if kind is None or (wants is not None and not wants(kind.topic)):
                break
            alike = alike + 1 if kind is last else 1
            room_bytes -= len(value)
            if alike > _STRETCH_AFTER or room_bytes < 0:
                break
            last = kind
            kinds.append(kind)
            payloads.append(value)
            position = positions[-1]
        if len(kinds) < 2:  # noqa: PLR2004 - one by itself is a run
            return False
        self._runs.append(
            MixedTopicBatch(self._header.base_offset + first_delta, kinds, payloads)
        )
        self._shared = None
        self._position = position
        self._offset_delta += len(kinds) - 1
        self._left -= len(kinds) - 1
        return True
