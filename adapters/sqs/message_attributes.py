"""Message attributes: validation with AWS's error texts, and conversion for answers.

A value is stored as bytes: UTF-8 of a String or Number, the bytes of a Binary. The rules are those
of "Amazon SQS message metadata" in the Developer Guide: at most ten attributes, names of 1 to 256
of ``A-Za-z0-9_.-``, types String, Number or Binary with an optional label after a period, numbers
of at most 38 digits from 10^-128 to 10^126.
"""

import binascii
import re
from base64 import b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from adapters.sqs.errors import UNSUPPORTED_OPERATION, SqsError, invalid_parameter
from adapters.sqs.text import quote, to_bytes

ATTRIBUTES_MAX: Final = 10
NAME_CHARS_MAX: Final = 256
TYPE_CHARS_MAX: Final = 256
NUMBER_DIGITS_MAX: Final = 38
TRACE_HEADER: Final = "AWSTraceHeader"
INVALID_CHARACTERS: Final = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
    "#xE000 to #xFFFD | #x10000 to #x10FFFF"
)

_BINARY: Final = "Binary"
_NUMBER: Final = "Number"
_NUMBER_MIN: Final = Decimal("1e-128")
_NUMBER_MAX: Final = Decimal("1e126")
_STRING: Final = "String"
_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]+")
_RESERVED_NAME: Final = re.compile(r"(?:aws|amazon)\.", re.IGNORECASE)
_TYPE: Final = re.compile(r"(?:String|Number|Binary)(?:\..+)?")
# Possessive quantifiers keep a value of 1 MiB that is no number from backtracking.
_NUMERIC: Final = re.compile(
    r"\s*+[+-]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d{1,3}+)?+\s*+", re.ASCII
)

Given = Mapping[str, Mapping[str, Any]]


class MessageAttribute(NamedTuple):
    """A type, with its custom label, and a value."""

    data_type: str
    value: bytes

    @property
    def is_binary(self) -> bool:
        """Whether the value is bytes, shown in base64, and not text."""
        return self.data_type.startswith(_BINARY)


Attributes = dict[str, MessageAttribute]


def parse_attributes(given: Given) -> Attributes:
    """Return the attributes of a sent message, in order. Error: ``SqsError``."""
    if len(given) > ATTRIBUTES_MAX:
        raise invalid_parameter(
            f"Number of message attributes [{len(given)}] exceeds the allowed maximum "
            f"[{ATTRIBUTES_MAX}]."
        )
    return {name: _parse(name, fields) for name, fields in given.items()}


def parse_trace_header(given: Given) -> bytes | None:
    """Return the X-Ray trace header of ``MessageSystemAttributes``. Error: ``SqsError``.

    It is the only system attribute that a sender may set, and its type is String.
    """
    trace: bytes | None = None
    for name, fields in given.items():
        if name != TRACE_HEADER:
            raise invalid_parameter(
                f"Message system attribute name '{quote(name)}' is invalid. The only "
                f"supported message system attribute is {TRACE_HEADER}."
            )
        attribute = _parse(name, fields)
        if attribute.data_type != _STRING:
            raise invalid_parameter(
                f"Message system attribute '{name}' must be of type '{_STRING}'."
            )
        trace = attribute.value
    return trace


def size_bytes(attributes: Mapping[str, MessageAttribute]) -> int:
    """Return the bytes of names, types and values, which count towards a message's size."""
    return sum(
        len(name.encode()) + len(attribute.data_type.encode()) + len(attribute.value)
        for name, attribute in attributes.items()
    )


def to_result(attributes: Mapping[str, MessageAttribute]) -> dict[str, dict[str, str]]:
    """Return attributes as the value of an answer."""
    return {
        name: {
            "DataType": attribute.data_type,
            "BinaryValue": b64encode(attribute.value).decode(),
        }
        if attribute.is_binary
        else {"DataType": attribute.data_type, "StringValue": attribute.value.decode()}
        for name, attribute in attributes.items()
    }


def is_legal_name(name: str) -> bool:
    """Return whether a name is legal for a message attribute."""
    return _name_fault(name) is None


def is_legal_type(data_type: str) -> bool:
    """Return whether a type is legal for a message attribute."""
    if len(data_type) > TYPE_CHARS_MAX or to_bytes(data_type) is None:
        return False
    return _TYPE.fullmatch(data_type) is not None


def is_number(value: bytes) -> bool:
    """Return whether bytes can be the value of a Number."""
    return value.isascii() and _NUMERIC.fullmatch(value.decode()) is not None


def _parse(name: str, fields: Mapping[str, Any]) -> MessageAttribute:
    fault = _name_fault(name)
    if fault is not None:
        raise invalid_parameter(fault)
    data_type = fields.get("DataType") or ""
    _check_type(name, data_type)
    if fields.get("StringListValues") or fields.get("BinaryListValues"):
        raise SqsError(
            UNSUPPORTED_OPERATION,
            "Message attribute list values in SendMessage operation are not supported.",
        )
    is_binary = data_type.startswith(_BINARY)
    field, other = (
        ("BinaryValue", "StringValue") if is_binary else ("StringValue", "BinaryValue")
    )
    value = fields.get(field)
    if fields.get(other) or (value is None and fields.get(other) is not None):
        raise invalid_parameter(
            f"The message (user) attribute '{name}' with type '{data_type}' must use field "
            f"'{_BINARY if is_binary else _STRING}'."
        )
    if not value:
        raise invalid_parameter(
            f"Message (user) attribute '{name}' must contain a non-empty value of type "
            f"'{data_type}'."
        )
    return MessageAttribute(
        data_type, _data(name, value) if is_binary else _text(name, data_type, value)
    )


def _name_fault(name: str) -> str | None:
    """Return the error text for an illegal name, or None."""
    fault = None
    if not name:
        fault = "The request must contain non-empty message (user) attribute names."
    elif len(name) > NAME_CHARS_MAX:
        fault = f"Length of message attribute name must be less than {NAME_CHARS_MAX} bytes."
    elif not _NAME.fullmatch(name):
        found = next(char for char in name if not _NAME.fullmatch(char))
        fault = (
            f"Invalid non-alphanumeric character '#x{ord(found):X}' was found in the message "
            "attribute name. Can only include alphanumeric characters, hyphens, underscores, or "
            "dots."
        )
    elif _RESERVED_NAME.match(name):
        fault = "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'."
    elif name.startswith("."):
        fault = "Invalid message attribute name starting with character '.' was found."
    elif name.endswith("."):
        fault = "Invalid message attribute name ending with character '.' was found."
    elif ".." in name:
        fault = "Message attribute name can not have successive '.' character."
    return fault


def _check_type(name: str, data_type: str) -> None:
    if not data_type:
        raise invalid_parameter(
            f"The message (user) attribute '{name}' must contain a non-empty message attribute "
            "type."
        )
    if len(data_type) > TYPE_CHARS_MAX:
        raise invalid_parameter(
            f"Length of message (user) attribute '{name}' type must be less than "
            f"{TYPE_CHARS_MAX} bytes."
        )
    if not is_legal_type(data_type):
        raise invalid_parameter(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the "
            "following supported type prefixes: Binary, Number, String."
        )


def _data(name: str, value: str) -> bytes:
    try:
        return binascii.a2b_base64(value.encode(), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise invalid_parameter(
            f"The message (user) attribute '{name}' contains an invalid Base64 value."
        ) from None


def _text(name: str, data_type: str, value: str) -> bytes:
    data = to_bytes(value)
    if data is None:
        raise invalid_parameter(INVALID_CHARACTERS)  # of a body it is InvalidMessageContents
    if data_type.startswith(_NUMBER):
        _check_number(name, data)
    return data


def _check_number(name: str, data: bytes) -> None:
    """Refuse a value that is no number, or has more digits or a larger exponent than allowed."""
    if not is_number(data) or _digits_count(data) > NUMBER_DIGITS_MAX:
        raise invalid_parameter(
            f"Can't cast the value of message (user) attribute '{name}' to a number."
        )
    size = Decimal(data.decode().strip()).copy_abs()  # exact
    if size and not _NUMBER_MIN <= size <= _NUMBER_MAX:
        raise invalid_parameter(
            f"Number attribute value {quote(data.decode())} should be in range "
            "(-10**128..10**126)"
        )


def _digits_count(number: bytes) -> int:
    """Return the count of digits without leading and trailing zeros."""
    mantissa = number.lower().partition(b"e")[0].strip().lstrip(b"+-")
    return len(mantissa.replace(b".", b"").strip(b"0"))
