"""Config keys that bound the memory of incoming requests, for adapters of large requests.

An adapter declares the keys with a default; ``gateway.budget.Budget`` enforces those of all
connections, ``gateway.length_framer`` those of one request.
"""

from typing import Annotated, Final

from pydantic import Field

_MIB: Final = 1024 * 1024

RequestBytesMax = Annotated[
    int,
    Field(
        ge=1024,
        le=1024 * _MIB,
        description="Bytes of one request; a larger one closes the connection.",
    ),
]
"""``request_bytes_max``."""

UnauthenticatedRequestBytesMax = Annotated[
    int,
    Field(
        ge=1024,
        le=1024 * _MIB,
        description="Bytes of one request of a client that has to log in and has not yet.",
    ),
]
"""``unauthenticated_request_bytes_max``."""

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
