"""The id of a message, made from its place: a send need not store one.

A record that has moved (a delayed message, a dead letter) carries the id that it had at its
first place in a header.
"""

from hashlib import blake2b
from typing import Final
from uuid import UUID

_ID_BYTES: Final = 16


def message_id(topic_uuid: UUID, number: int, offset: int) -> str:
    """Return the id of the message at an offset of a topic's partition, in a UUID's form.

    >>> message_id(UUID(int=7), 0, 1)
    'fffcbf07-53a3-cd79-2fb1-5cddc033735b'
    """
    place = topic_uuid.bytes + number.to_bytes(4, "big") + offset.to_bytes(8, "big")
    text = blake2b(place, digest_size=_ID_BYTES).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
