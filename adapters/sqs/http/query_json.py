"""JSON answers of the Query protocol, for requests with ``Accept: application/json``. Pure.

    {"ReceiveMessageResponse": {"ReceiveMessageResult": {"messages": null},
                                "ResponseMetadata": {"RequestId": "..."}}}

Names are the API's, except for two lists; maps are lists of names and values.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from adapters.sqs.call import Result
from adapters.sqs.errors import SqsError
from adapters.sqs.http.shapes import Entries, Items, Operation, Shape, Structure

CONTENT_TYPE: Final = "application/json"
_NAMES: Final[Mapping[str, str]] = {"Messages": "messages", "QueueUrls": "queueUrls"}


def encode_result(operation: Operation, result: Result, request_id: str) -> bytes:
    """Return the body of an answer."""
    answer: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id}}
    if operation.output is not None:
        members = _members(operation.output, result)
        if not members and "Messages" in operation.output.members:
            members = {"messages": None}
        answer[f"{operation.name}Result"] = members
    return orjson.dumps({f"{operation.name}Response": answer})


def encode_error(error: SqsError, request_id: str) -> bytes:
    """Return the body of an error."""
    code = error.code
    found = {
        "Type": "Sender" if code.is_sender else "Receiver",
        "Code": code.query_code,
        "Message": error.query_message,
        "Detail": None,
    }
    return orjson.dumps({"Error": found, "RequestId": request_id})


def _members(structure: Structure, values: Result) -> dict[str, Any]:
    members = structure.members
    return {
        _NAMES.get(name, name): _value(members[name], value) for name, value in values.items()
    }


def _value(shape: Shape, value: Any) -> Any:  # noqa: ANN401 - as the result has it
    if isinstance(shape, Structure):
        return _members(shape, value)
    if isinstance(shape, Items):
        return [_value(shape.member, item) for item in value]
    if isinstance(shape, Entries):
        return [
            {shape.key_name: key, shape.value_name: _value(shape.value, item)}
            for key, item in value.items()
        ]
    return value
