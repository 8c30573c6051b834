"""MQTT's reason codes, and which of them each of the gateway's errors becomes.

The codes are those of MQTT 5.0 section 2.4; ``RETURN_CODES`` are CONNACK's of 3.x
(MQTT 3.1.1 section 3.2.2.3).
"""

from enum import IntEnum
from typing import Final

from gateway import errors
from gateway.admission import TooMuchBeforeLogin
from gateway.errors import GatewayError, PeerError


class ReasonCode(IntEnum):
    """One byte that says how it went; from 0x80 on it did not."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class MqttError(PeerError):
    """The peer broke the protocol: DISCONNECT with the reason in 5.0, a close in 3.x."""

    def __init__(self, reason_code: ReasonCode, message: str) -> None:
        super().__init__(message)
        self.reason_code = reason_code

    def without_traceback(self) -> "MqttError":
        """Return the same error for keeping, or for raising anew.

        A traceback keeps alive what the frames it names had read, and who keeps the error too.
        """
        return MqttError(self.reason_code, str(self))


REASON_CODES: Final[dict[type[GatewayError], ReasonCode]] = {
    GatewayError: ReasonCode.UNSPECIFIED_ERROR,
    errors.PeerError: ReasonCode.PROTOCOL_ERROR,
    TooMuchBeforeLogin: ReasonCode.QUOTA_EXCEEDED,
    errors.RequestError: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    errors.StorageUnavailable: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    errors.StorageFull: ReasonCode.QUOTA_EXCEEDED,
    errors.Overloaded: ReasonCode.QUOTA_EXCEEDED,
    errors.ShuttingDown: ReasonCode.SERVER_SHUTTING_DOWN,
    errors.PolicyViolation: ReasonCode.QUOTA_EXCEEDED,
    errors.MessageTooLarge: ReasonCode.PACKET_TOO_LARGE,
    errors.Unauthenticated: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    errors.Unauthorized: ReasonCode.NOT_AUTHORIZED,
    errors.NotLeader: ReasonCode.USE_ANOTHER_SERVER,
}

RETURN_CODES: Final[dict[ReasonCode, int]] = {
    ReasonCode.SUCCESS: 0,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    ReasonCode.SERVER_UNAVAILABLE: 3,
    ReasonCode.SERVER_BUSY: 3,
    ReasonCode.SERVER_SHUTTING_DOWN: 3,
    ReasonCode.QUOTA_EXCEEDED: 3,
    ReasonCode.USE_ANOTHER_SERVER: 3,
    ReasonCode.CONNECTION_RATE_EXCEEDED: 3,
    ReasonCode.UNSPECIFIED_ERROR: 3,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: 3,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
    ReasonCode.BANNED: 5,
}


def reason_code(error: GatewayError) -> ReasonCode:
    """Return the code that says ``error``: its own, or that of the nearest base class."""
    if isinstance(error, MqttError):
        return error.reason_code
    for kind in type(error).__mro__:
        if kind in REASON_CODES:
            return REASON_CODES[kind]
    return ReasonCode.UNSPECIFIED_ERROR


def return_code(code: ReasonCode) -> int | None:
    """Return CONNACK's code in 3.x, or None where 3.x only closes."""
    return RETURN_CODES.get(code)
