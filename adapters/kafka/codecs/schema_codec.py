"""Codec of all less frequent APIs, by kafka-python's message classes and their schemas.

kafka-python is imported for the first request of such an API. Its classes are generated from
Apache's schemas at import, which takes 125 ms and 14 MB; a gateway without admin clients and
consumer groups never needs them. Request and response headers are encoded elsewhere.

``decode_request`` accepts Metadata too and passes it to ``metadata_codec``, which is written by
hand because every client sends Metadata and its response grows with the number of topics.
"""

import functools
import importlib
from collections.abc import Mapping
from typing import Any, Final

from adapters.kafka.codec import ELEMENTS_MAX
from adapters.kafka.codecs import consumer_group_codec, group_fields, metadata_codec
from adapters.kafka.codecs.schema_reader import Cursor, Reader, reader_of
from gateway.errors import PeerError
from gateway.model import Buffer

_ENCODE_BUFFER_BYTES: Final = 4096  # grows on demand; most responses fit

# API key -> kafka-python's module, the stem of its class names, and the first flexible version
# (None: never; KIP-482). The version must be known before the library is loaded.
_MESSAGES: Final[Mapping[int, tuple[str, str, int | None]]] = {
    2: ("consumer", "ListOffsets", 6),
    8: ("consumer", "OffsetCommit", 8),
    9: ("consumer", "OffsetFetch", 6),
    10: ("metadata", "FindCoordinator", 3),
    11: ("consumer", "JoinGroup", 6),
    12: ("consumer", "Heartbeat", 4),
    13: ("consumer", "LeaveGroup", 4),
    14: ("consumer", "SyncGroup", 4),
    15: ("admin", "DescribeGroups", 5),
    16: ("admin", "ListGroups", 3),
    17: ("sasl", "SaslHandshake", None),
    19: ("admin", "CreateTopics", 5),
    20: ("admin", "DeleteTopics", 4),
    21: ("admin", "DeleteRecords", 2),
    22: ("producer", "InitProducerId", 2),
    23: ("consumer", "OffsetForLeaderEpoch", 4),
    24: ("producer", "AddPartitionsToTxn", 3),
    25: ("producer", "AddOffsetsToTxn", 3),
    26: ("producer", "EndTxn", 3),
    27: ("producer", "WriteTxnMarkers", 1),
    28: ("producer", "TxnOffsetCommit", 3),
    29: ("admin", "DescribeAcls", 2),
    30: ("admin", "CreateAcls", 2),
    31: ("admin", "DeleteAcls", 2),
    32: ("admin", "DescribeConfigs", 4),
    33: ("admin", "AlterConfigs", 2),
    35: ("admin", "DescribeLogDirs", 2),
    36: ("sasl", "SaslAuthenticate", 2),
    37: ("admin", "CreatePartitions", 2),
    42: ("admin", "DeleteGroups", 2),
    43: ("admin", "ElectLeaders", 2),
    44: ("admin", "IncrementalAlterConfigs", 1),
    45: ("admin", "AlterPartitionReassignments", 0),
    46: ("admin", "ListPartitionReassignments", 0),
    47: ("consumer", "OffsetDelete", None),
    48: ("admin", "DescribeClientQuotas", 1),
    49: ("admin", "AlterClientQuotas", 1),
    50: ("admin", "DescribeUserScramCredentials", 0),
    51: ("admin", "AlterUserScramCredentials", 0),
    55: ("admin", "DescribeQuorum", 0),
    60: ("admin", "DescribeCluster", 0),
    61: ("admin", "DescribeProducers", 0),
    65: ("admin", "DescribeTransactions", 0),
    66: ("admin", "ListTransactions", 0),
    74: ("admin", "ListConfigResources", 0),
    75: ("admin", "DescribeTopicPartitions", 0),
}


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether headers and bodies of this version have tagged fields (KIP-482).

    >>> is_flexible(19, 4), is_flexible(19, 5), is_flexible(17, 1)
    (False, True, False)
    """
    if api_key == metadata_codec.API_KEY:
        return version >= metadata_codec.FLEXIBLE_FROM
    if api_key in consumer_group_codec.API_KEYS or api_key in group_fields.SHARE_API_KEYS:
        return True
    if api_key not in _MESSAGES:
        msg = f"API key {api_key} is not known"
        raise PeerError(msg)
    flexible_from = _MESSAGES[api_key][2]
    return flexible_from is not None and version >= flexible_from


def decode_request(
    api_key: int, version: int, body: Buffer, elements_max: int = ELEMENTS_MAX
) -> Any:  # noqa: ANN401 - generated
    """Return the message in ``body``, the bytes after the request header.

    It is an object of kafka-python's class, with the schema's field names in snake case; for
    Metadata it is a ``metadata_codec.MetadataRequest``. Memory is bounded by the body plus
    ``elements_max`` small objects. Errors: ``PeerError`` only.
    """
    if api_key == metadata_codec.API_KEY:
        return metadata_codec.decode_request(version, body, elements_max)
    return _reader(api_key, version)(Cursor(body, elements_max))


def encode_response(response: Any, version: int) -> bytearray:  # noqa: ANN401 - generated
    """Return the body of a kafka-python response, without a header.

    Each call has a buffer of its own, because the library's shared buffer keeps the size of the
    largest response forever.
    """
    buffers = importlib.import_module("kafka.protocol.schemas.fields.codecs.encode_buffer")
    buffer = buffers.EncodeBuffer(_ENCODE_BUFFER_BYTES)
    flexible = response.flexible_version_q(version)
    # The schema has no public name in kafka-python; the release is pinned.
    schema = response._struct  # noqa: SLF001
    schema.compiled_encode_into(version, compact=flexible, tagged=flexible)(response, buffer)
    encoded: bytearray = buffer.result()
    return encoded


@functools.cache  # one entry per served API and version, about 150
def _reader(api_key: int, version: int) -> Reader:
    if api_key not in _MESSAGES:
        msg = f"API key {api_key} is not known"
        raise PeerError(msg)
    module_name, stem, _ = _MESSAGES[api_key]
    # Imported late on purpose, see the module's docstring.
    module = importlib.import_module(f"kafka.protocol.{module_name}")
    message_class = getattr(module, f"{stem}Request")
    if not message_class.valid_versions[0] <= version <= message_class.valid_versions[1]:
        msg = f"{stem} has no version {version}"
        raise PeerError(msg)
    return reader_of(message_class, version)
