"""Splitting of large admin requests into requests of at most a slice each.

These APIs take a list of elements and answer each by itself. A duplicate element is detected
only within a slice.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

from adapters.kafka.node.large_requests import SLICE_ELEMENTS, yield_to_loop
from gateway.errors import PeerError


class _Split(NamedTuple):
    """Names of the list fields of an API: in the request (one of ``asked``) and the response.

    ``parts``: the list within each element that is split too, in request and response. Without
    it, ``alone`` is a list within each element that may not exceed a slice.
    """

    asked: tuple[str, ...]
    answered: str
    parts: tuple[str, str] | None = None
    alone: str = ""


_PARTITIONS: Final = "partitions", "partitions"

SPLIT: Final[Mapping[int, _Split]] = {
    15: _Split(("groups",), "groups"),  # DescribeGroups
    19: _Split(("topics",), "topics", alone="configs"),  # CreateTopics
    20: _Split(("topics", "topic_names"), "responses"),  # DeleteTopics
    21: _Split(("topics",), "topics", _PARTITIONS),  # DeleteRecords
    23: _Split(("topics",), "topics", _PARTITIONS),  # OffsetForLeaderEpoch
    27: _Split(("markers",), "markers", alone="topics"),  # WriteTxnMarkers
    30: _Split(("creations",), "results"),  # CreateAcls
    31: _Split(("filters",), "filter_results"),  # DeleteAcls
    33: _Split(("resources",), "responses", alone="configs"),  # AlterConfigs
    37: _Split(("topics",), "results", alone="assignments"),  # CreatePartitions
    42: _Split(("groups_names",), "results"),  # DeleteGroups
    43: _Split(
        ("topic_partitions",), "replica_election_results", ("partitions", "partition_result")
    ),  # ElectLeaders
    44: _Split(("resources",), "responses", alone="configs"),  # IncrementalAlterConfigs
    45: _Split(("topics",), "responses", _PARTITIONS),  # AlterPartitionReassignments
    47: _Split(("topics",), "topics", _PARTITIONS),  # OffsetDelete
    49: _Split(("entries",), "entries", alone="ops"),  # AlterClientQuotas
    55: _Split(("topics",), "topics", _PARTITIONS),  # DescribeQuorum
    61: _Split(("topics",), "topics", ("partition_indexes", "partitions")),  # DescribeProducers
    65: _Split(("transactional_ids",), "transaction_states"),  # DescribeTransactions
}
"""By API key. The other APIs have no list that is handled element by element."""


async def handle_split(
    api_key: int,
    handle: Callable[[Any, Any, int], Any],
    request: Any,  # noqa: ANN401 - generated classes
    session: Any,  # noqa: ANN401 - passed on
    version: int,
) -> Any:  # noqa: ANN401
    """Return the response to a large request; ``handle`` is called for each slice.

    Error: ``PeerError`` for an element that is too large by itself.
    """
    split = SPLIT.get(api_key)
    name = split and next((one for one in split.asked if getattr(request, one, None)), None)
    if split is None or name is None:
        return await _served(handle, request, session, version)
    answers: list[Any] = []
    for elements, goes_on in _slices(split, getattr(request, name)):
        setattr(request, name, elements)
        response = await _served(handle, request, session, version)
        found = list(getattr(response, split.answered))
        if goes_on and answers and found and split.parts is not None:
            # The rest of an element that began in the slice before.
            earlier, rest = answers[-1], found.pop(0)
            whole = [*getattr(earlier, split.parts[1]), *getattr(rest, split.parts[1])]
            setattr(earlier, split.parts[1], whole)
        answers += found
        await yield_to_loop()
    setattr(response, split.answered, answers)
    return response


async def _served(
    handle: Callable[[Any, Any, int], Any],
    request: Any,  # noqa: ANN401
    session: Any,  # noqa: ANN401
    version: int,
) -> Any:  # noqa: ANN401
    response = handle(request, session, version)
    return await response if isinstance(response, Awaitable) else response


def _slices(split: _Split, elements: Sequence[Any]) -> Iterator[tuple[list[Any], bool]]:
    """Yield slices of the elements, and whether a slice continues the last element before it."""
    taken: list[Any] = []
    room = SLICE_ELEMENTS
    goes_on = False
    for element in elements:
        parts = _parts_of(split, element)
        start = 0
        while True:
            some = parts[start : start + max(room - 1, 1)]
            taken.append(_with_parts(split, element, some))
            room -= 1 + len(some)
            start += len(some)
            is_cut = start < len(parts)
            if room <= 1 or is_cut:
                yield taken, goes_on
                taken, room, goes_on = [], SLICE_ELEMENTS, is_cut
            if not is_cut:
                break
    if taken:
        yield taken, goes_on


def _parts_of(split: _Split, element: Any) -> Sequence[Any]:  # noqa: ANN401
    if split.parts is not None:
        return getattr(element, split.parts[0]) or ()
    if split.alone and len(getattr(element, split.alone, None) or ()) > SLICE_ELEMENTS:
        msg = f"more than {SLICE_ELEMENTS} {split.alone} in one element"
        raise PeerError(msg)
    return ()


def _with_parts(split: _Split, element: Any, parts: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return a copy of an element with some of its parts only."""
    if split.parts is None or len(parts) == len(getattr(element, split.parts[0]) or ()):
        return element
    cut = copy(element)
    setattr(cut, split.parts[0], parts)
    return cut
