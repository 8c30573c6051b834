"""Commands of the remoting protocol, and its numbers.

Names and numbers are those of ``RequestCode``, ``ResponseCode``, ``LanguageCode`` and ``MQVersion``
of Apache RocketMQ 5.5. Both directions send commands: a request, or the response to one.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from gateway.model import Buffer

RESPONSE_FLAG: Final = 0x1
ONEWAY_FLAG: Final = 0x2
VERSION: Final = 513
"""Version of our own commands: 5.5.0."""
STANDARD_JSON_FROM: Final = 401
"""First version (4.9.4) whose clients read a route with quoted numbers as keys."""
RECONSUME_TIMES_FROM: Final = 121
"""First version (3.4.9) whose requests say how often a message may be consumed again."""
NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})


class Serialization(IntEnum):
    """Form of a command's header: the frame's second word has it in the highest byte."""

    JSON = 0
    ROCKETMQ = 1


class RequestCode(IntEnum):
    """Codes of requests that this adapter knows by name, served or sent."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    GET_CONSUMER_LIST_BY_GROUP = 38
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    CHECK_CLIENT_CONFIG = 46
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    LITE_PULL_MESSAGE = 361


class ResponseCode(IntEnum):
    """Codes of responses."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    INVALID_PARAMETER = 29


LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
)  # fmt: skip
"""Names of ``LanguageCode``, in the order of their numbers."""
OWN_LANGUAGE: Final = "JAVA"
"""Language of our own commands: the one value that the enumerations of all clients have."""


class Command(NamedTuple):
    """Request or response. ``opaque`` relates both; it is the requester's number.

    ``fields`` are the fields of the header that depend on the code, all of them text.
    """

    code: int
    fields: Mapping[str, str] = NO_FIELDS
    body: Buffer = b""
    opaque: int = 0
    flag: int = 0
    version: int = VERSION
    language: str = OWN_LANGUAGE
    remark: str | None = None
    serialization: Serialization = Serialization.JSON

    @property
    def is_response(self) -> bool:
        """Whether it answers a request of its receiver."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether it is a request that must not be answered."""
        return bool(self.flag & ONEWAY_FLAG)

    def answer(
        self,
        code: int,
        fields: Mapping[str, str] = NO_FIELDS,
        body: Buffer = b"",
        remark: str | None = None,
    ) -> "Command":
        """Return the response to this request, in its serialization."""
        return Command(
            code,
            fields,
            body,
            self.opaque,
            RESPONSE_FLAG,
            remark=remark,
            serialization=self.serialization,
        )
