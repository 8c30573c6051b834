"""The one operation of STS that is served: SDK tools ask it who they are before anything else.

API version 2011-06-15, of the Query protocol alone. Pure.
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
