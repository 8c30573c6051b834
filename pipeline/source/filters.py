"""Predicates of a query that limit topics, partitions, offsets and times.

Spark evaluates them again, row by row; here they only exclude data that certainly has no row of the
answer. Spark pushes them if ``spark.sql.python.filterPushdown.enabled`` is true, and the source
accepts them if ``pushFilters`` is.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pipeline.log.options import EPOCH, MICROSECOND, Options
from pipeline.log.splits import Positions
from pipeline.log.views import PartitionView

_TESTS: Final[Mapping[type, Callable[[Any, Any], bool]]] = {
    EqualTo: lambda found, said: found == said,
    EqualNullSafe: lambda found, said: found == said,
    GreaterThan: lambda found, said: found > said,
    GreaterThanOrEqual: lambda found, said: found >= said,
    LessThan: lambda found, said: found < said,
    LessThanOrEqual: lambda found, said: found <= said,
    In: lambda found, said: found in said,
    StringStartsWith: lambda found, said: found.startswith(said),
    StringEndsWith: lambda found, said: found.endswith(said),
    StringContains: lambda found, said: said in found,
}
_LOWER: Final = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)
_UPPER: Final = (EqualTo, EqualNullSafe, LessThan, LessThanOrEqual)
_INCLUSIVE: Final = (EqualTo, EqualNullSafe, LessThanOrEqual)


class Predicates(NamedTuple):
    """Filters that hold for each row of the answer."""

    filters: tuple[Any, ...] = ()

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> "Predicates":
        """Keep the filters that can be used here."""
        return cls(
            tuple(
                one
                for one in filters
                if type(one) in _TESTS
                and len(getattr(one, "attribute", ())) == 1
                and getattr(one, "value", None) is not None
            )
        )

    def wants(self, view: PartitionView) -> bool:
        """Return whether a partition may have rows of the answer."""
        known = {"topic": view.identity.topic.name, "partition": view.identity.number}
        return all(
            _TESTS[type(one)](known[one.attribute[0]], one.value)
            for one in self.filters
            if one.attribute[0] in known
        )

    def offsets(self, start: Positions, end: Positions) -> tuple[Positions, Positions]:
        """Return narrower positions of partitions that still include all rows of the answer."""
        first, behind = self._integer_bounds("offset", scale=1)
        start = {place: max(offset, min(first, end[place])) for place, offset in start.items()}
        end = {place: max(start[place], min(offset, behind)) for place, offset in end.items()}
        return start, end

    def within_times(self, options: Options) -> Options:
        """Return options with narrower times."""
        first, behind = self._integer_bounds("timestamp", scale=1_000)
        if first > options.start_unix_ms:
            options = options._replace(start_unix_ms=int(first))
        if behind < (options.end_unix_ms if options.end_unix_ms >= 0 else math.inf):
            options = options._replace(end_unix_ms=max(int(behind), 0))
        return options

    def _integer_bounds(self, column: str, *, scale: int) -> tuple[Any, Any]:
        """Return the lowest number that a row may have, and one above the highest."""
        first, behind = -1, math.inf
        for one in self.filters:
            number = _number(one.value, scale) if one.attribute == (column,) else None
            if number is None:
                continue
            if isinstance(one, _LOWER):
                first = max(first, math.floor(number))
            if isinstance(one, _UPPER):
                is_inclusive = isinstance(one, _INCLUSIVE)
                behind = min(
                    behind, math.floor(number) + 1 if is_inclusive else math.ceil(number)
                )
        return first, behind


def _number(value: object, scale: int) -> Fraction | int | None:
    """Return a literal as a number, a time in unix ms; None for other literals."""
    if isinstance(value, datetime):
        # A time without a zone is in the session's zone, which is not known here.
        return None if value.tzinfo is None else Fraction((value - EPOCH) // MICROSECOND, 1_000)
    return value if isinstance(value, int) and scale == 1 else None
