"""Config keys that bound the memory of incoming requests, for adapters of large requests.

An adapter declares both keys with a default; ``gateway.budget.Budget`` enforces them.
"""

from typing import Annotated

from pydantic import Field

RequestBytesBudget = Annotated[
    int,
    Field(
        description="Bytes of incomplete and unserved requests of all connections, counted as they "
        "arrive; above it connections are not read.",
    ),
]
"""``request_bytes_budget``; the adapter gives the minimum, as the smallest useful one differs."""

RequestStallSeconds = Annotated[
    int,
    Field(
        ge=1,
        le=3_600,
        description="Seconds in which less than 64 KiB arrives of a request that has begun, while "
        "others wait for `request_bytes_budget`; then its connection is closed.",
    ),
]
"""``request_stall_s_max``."""
