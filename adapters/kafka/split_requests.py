"""Large requests of the APIs for administration, served as several of at most a slice each.

Each of them asks for a list of things and answers each by itself. What is refused because it is
there twice is refused only where both are in one slice.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from adapters.kafka.large_requests import next_turn, slices

SPLIT: Final[Mapping[int, tuple[tuple[str, ...], str]]] = {
    19: (("topics",), "topics"),  # CreateTopics
    20: (("topics", "topic_names"), "responses"),  # DeleteTopics
    21: (("topics",), "topics"),  # DeleteRecords
    23: (("topics",), "topics"),  # OffsetForLeaderEpoch
    30: (("creations",), "results"),  # CreateAcls
    31: (("filters",), "filter_results"),  # DeleteAcls
    32: (("resources",), "results"),  # DescribeConfigs
    33: (("resources",), "responses"),  # AlterConfigs
    37: (("topics",), "results"),  # CreatePartitions
    42: (("groups_names",), "results"),  # DeleteGroups
    44: (("resources",), "responses"),  # IncrementalAlterConfigs
    61: (("topics",), "topics"),  # DescribeProducers
    65: (("transactional_ids",), "transaction_states"),  # DescribeTransactions
    15: (("groups",), "groups"),  # DescribeGroups
}
"""By API key: the fields of the request of which one is the list, and that of the response."""


async def handle_split(
    api_key: int,
    handle: Callable[[Any, Any, int], Any],
    request: Any,  # noqa: ANN401 - generated classes
    session: Any,  # noqa: ANN401 - passed on
    version: int,
) -> Any:  # noqa: ANN401
    """Return the response to a large request; ``handle`` serves a slice of it."""
    names, answered = SPLIT.get(api_key, ((), ""))
    name = next((one for one in names if getattr(request, one, None)), None)
    parts = [None] if name is None else slices(getattr(request, name))
    answers: list[Any] = []
    for part in parts:
        if name is not None:
            setattr(request, name, part)
        response = handle(request, session, version)
        if isinstance(response, Awaitable):
            response = await response
        if name is None:
            return response
        answers += getattr(response, answered)
        await next_turn()
    setattr(response, answered, answers)
    return response
