"""Lookup of wanted topics in the storage's index of keys, where it has one.

A filter is matched against the topics of a file, not against its records; followers read only
the batches that the answer names. One answer, for one file of the log, serves all followers whose
filters were in the question; for followers that come later, only their filters are asked.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from adapters.mqtt.reading.wanted_topics import WantedTopics
from gateway.storage import KeySpans, WantedKeys

ANSWERS_MAX: Final = 4  # kept, one for each offset that some followers have reached
RECORDS_ASKED_MIN: Final = 4_096  # fewer records are read sooner than an answer comes

Span = tuple[int, int]


class KeyedLog(Protocol):
    """The part of a feed that is used here."""

    @property
    def has_key_spans(self) -> bool:
        """Whether the storage has an index of keys."""
        ...

    async def spans_with_keys(self, keys: WantedKeys, start: int, end: int) -> KeySpans:
        """Return the offsets where wanted keys may be."""
        ...


class ReadSpans(NamedTuple):
    """Spans to read; below ``end`` nothing else is wanted at a revision.

    ``revision`` is None when all is read, which serves every follower.
    """

    spans: Sequence[Span]
    end: int
    revision: int | None


class _Answer(NamedTuple):
    """Answer for offsets [start, end): messages wanted at ``revision`` are within ``spans``."""

    start: int
    end: int
    spans: list[Span]
    revision: int

    @property
    def is_all(self) -> bool:
        """Whether all is to be read."""
        return self.spans == [(self.start, self.end)]


class KeyLookup:
    """Answers of the storage about one feed, for one set of filters that only grows."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log
        self._answers: deque[_Answer] = deque(maxlen=ANSWERS_MAX)

    def forget(self) -> None:
        """Drop all answers: the filters have changed."""
        self._answers = deque(maxlen=ANSWERS_MAX)  # a pending question keeps the old deque

    async def spans_to_read(
        self, wanted: WantedTopics, newest: int, offset: int, end: int
    ) -> ReadSpans:
        """Return the spans in [offset, end) that followers up to a number have to read.

        Errors: ``StorageUnavailable``, ``TopicNotFound``.
        """
        if end - offset < RECORDS_ASKED_MIN or not self._log.has_key_spans:
            return ReadSpans([(offset, end)], end, None)
        answer = self._find(offset)
        if answer is None:
            answer = await self._ask(wanted, offset, end)
        elif newest >= answer.revision:
            answer = await self._ask_more(wanted, answer)
            if answer is not None and answer.end <= offset:  # files have changed
                answer = await self._ask(wanted, offset, end)
        if answer is None:
            return ReadSpans([(offset, end)], end, None)
        first = bisect_right(answer.spans, offset, key=_end_of)
        revision = None if answer.is_all else answer.revision
        return ReadSpans(answer.spans[first:], answer.end, revision)

    def _find(self, offset: int) -> _Answer | None:
        for answer in self._answers:
            if answer.start <= offset < answer.end:
                return answer
        return None

    async def _ask(self, wanted: WantedTopics, offset: int, end: int) -> _Answer | None:
        keys, revision, answers = wanted.keys_since(0), wanted.revision, self._answers
        if keys is None:
            return None
        spans, upto = await self._log.spans_with_keys(keys, offset, end)
        answer = _Answer(offset, upto, list(spans), revision)
        answers.append(answer)
        return answer

    async def _ask_more(self, wanted: WantedTopics, answer: _Answer) -> _Answer | None:
        """Extend an answer by the filters of followers that came later."""
        revision, answers = wanted.revision, self._answers
        keys = wanted.keys_since(answer.revision)
        if keys is None:
            return None
        spans, upto = answer.spans, answer.end
        if not answer.is_all and (keys.exact or keys.prefixes):
            more, upto = await self._log.spans_with_keys(keys, answer.start, answer.end)
            spans = _joined([*spans, *more], upto)
        better = _Answer(answer.start, upto, spans, revision)
        if answer in answers:
            answers.remove(answer)
        answers.append(better)
        return better


def _end_of(span: Span) -> int:
    return span[1]


def _joined(spans: list[Span], upto: int) -> list[Span]:
    """Merge overlapping spans; lowest first, cut at ``upto``."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], min(max(end, joined[-1][1]), upto)
        elif start < upto:
            joined.append((start, min(end, upto)))
    return joined
