"""How much a body may hold, looked at before it is decoded: what is large and odd costs the loop.

A message of 1 MiB may be all commas and quotation marks, so names and values are counted outside
of texts. It takes 1 ms for 1 MiB, where to decode as much of small values takes 60. Pure.
"""

from typing import Final

from adapters.sqs.errors import MALFORMED_INPUT, SqsError

UNCHECKED_BYTES_MAX: Final = 65_536  # below it a body cannot hold too much
ELEMENTS_MAX: Final = 10_000  # ten messages with ten attributes each have 700


def check_elements(body: bytes, elements_max: int) -> None:
    """Refuse JSON with too many names and values. Error: ``SqsError`` (MALFORMED_INPUT)."""
    if len(body) <= UNCHECKED_BYTES_MAX:
        return
    texts = body
    if b"\\" in body:  # then an escaped one must not end a text
        texts = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if texts.count(b'"') <= 2 * elements_max:
        structure = b"".join(texts.split(b'"')[::2])
        found = structure.count(b",") + structure.count(b"[") + structure.count(b"{")
        if found <= elements_max:
            return
    raise SqsError(MALFORMED_INPUT, f"the body has more than {elements_max} names and values")
