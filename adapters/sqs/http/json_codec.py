"""AWS JSON 1.0: decoding of parameters, encoding of results and errors. Pure.

https://smithy.io/2.0/aws/protocols/aws-json-1_0-protocol.html
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

import orjson

from adapters.sqs.call import Params, Result
from adapters.sqs.errors import MALFORMED_INPUT, SqsError, missing_parameter
from adapters.sqs.http.operations import ERROR_SHAPES, OPERATIONS
from adapters.sqs.http.shapes import Entries, Items, Operation, Scalar, Shape, Structure

CONTENT_TYPE: Final = "application/x-amz-json-1.0"

_MODELED: Final = "com.amazonaws.sqs#"
_COMMON: Final = "com.amazon.coral.service#"
# AWS's names for a value of the wrong type.
_FOUND: Final[Mapping[type, str]] = {
    str: "STRING_VALUE",
    int: "NUMBER_VALUE",
    float: "DECIMAL_VALUE",
    bool: "TRUE_VALUE",
}
# Required members of batch entries, by the entries' name, where all of them are texts.
_PLAIN_ENTRIES: Final[Mapping[str, frozenset[str]]] = {
    shape.query_name: frozenset(shape.member.required)
    for operation in OPERATIONS.values()
    for shape in operation.input.members.values()
    if isinstance(shape, Items)
    and isinstance(shape.member, Structure)
    and all(shape.member.members[name].type is str for name in shape.member.required)
}


def decode_json(operation: Operation, body: bytes) -> Params:
    """Return the parameters of a request. Errors: ``SqsError``.

    Members that are null are left out; unknown members stay and are ignored.
    """
    if not body:
        params: Any = {}
    else:
        try:
            params = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise _malformed(f"the body is not JSON: {error}") from None
    if type(params) is not dict:
        raise _malformed("Unexpected value: the body is not an object")
    return _checked(params, operation.input)


def _checked(params: Params, structure: Structure) -> Params:
    shape_of = structure.members.get
    nulls: list[str] | None = None
    for name, value in params.items():
        shape = shape_of(name)
        if shape is None:
            continue
        if type(value) is not shape.type:
            if value is not None:
                raise _mismatch(shape, value)
            nulls = nulls or []
            nulls.append(name)
        elif type(shape) is not Scalar:
            _check_inside(shape, value)
    for name in nulls or ():
        del params[name]
    return params


def _check_inside(shape: Shape, value: Any) -> None:  # noqa: ANN401 - as JSON gave it
    """Check the elements of a list, map or structure; shapes nest four deep at most."""
    if type(shape) is Items:
        member = shape.member
        if type(member) is Structure:
            _check_structures(shape.query_name, member, value)
            return
        for item in value:
            _check_member(member, item)
    elif isinstance(shape, Entries):
        for item in value.values():
            _check_member(shape.value, item)
    elif isinstance(shape, Structure):
        _checked(value, shape)


def _check_structures(query_name: str, member: Structure, items: list[Any]) -> None:
    """Check the entries of a batch, the only long list that comes often."""
    names = _PLAIN_ENTRIES.get(query_name)
    if names is not None and _are_plain(items, names):
        return  # the common case
    for number, item in enumerate(items, 1):
        if type(item) is not dict:
            raise _mismatch(member, item)
        _checked(item, member)
        for name in member.required:
            if name not in item:
                raise missing_parameter(f"{query_name}.{number}.{name}")


def _are_plain(items: list[Any], names: frozenset[str]) -> bool:
    """Return whether all entries have exactly the required members, in one order, as texts."""
    try:
        found = tuple(items[0])
        "".join(chain.from_iterable(map(dict.values, items)))
    except (
        TypeError,
        IndexError,
    ):  # an item is no dict, a value is no text, or there is no item
        return False
    return (
        len(found) == len(names)
        and names.issuperset(found)
        and tuple(chain.from_iterable(items)) == found * len(items)
    )


def _check_member(shape: Shape, value: Any) -> None:  # noqa: ANN401
    if type(value) is not shape.type:
        raise _mismatch(shape, value)
    if type(shape) is not Scalar:
        _check_inside(shape, value)


def _mismatch(shape: Shape, value: Any) -> SqsError:  # noqa: ANN401
    if isinstance(shape, Items):
        return _malformed("Expected list or null")
    if not isinstance(shape, Scalar):
        return _malformed("Expected map or null")
    found = _FOUND.get(type(value))
    if found is None:
        return _malformed("Start of structure or map found where not expected.")
    if value is False:
        found = "FALSE_VALUE"
    return _malformed(f"{found} can not be converted to {shape.word}")


def _malformed(message: str) -> SqsError:
    return SqsError(MALFORMED_INPUT, message)


def encode_result(result: Result) -> bytes:
    """Return the body of an answer."""
    return orjson.dumps(result) if result else b"{}"


def encode_error(error: SqsError) -> bytes:
    """Return the body of an error."""
    shape = error.code.shape
    namespace = _MODELED if shape in ERROR_SHAPES else _COMMON
    return orjson.dumps({"__type": namespace + shape, "message": error.message})
