"""GetCallerIdentity, the only operation of STS that is served. Pure.

SDK tools call it first, to show who they are. API version 2011-06-15, Query protocol only.
"""

from typing import Final

from adapters.sqs.http.shapes import STRING, STS, Operation, Structure

GET_CALLER_IDENTITY: Final = Operation(
    name="GetCallerIdentity",
    input=Structure({}),
    output=Structure({"Arn": STRING, "Account": STRING}),
    errors=frozenset(),
    service=STS,
)
