"""Limit of names and values in a JSON body, checked before it is decoded. Pure.

Decoding 1 MiB of small values would keep the loop for 60 ms; this check takes 1 ms. A message of
1 MiB may consist of commas and quotation marks, so names and values are counted outside of texts.
"""

from typing import Final

from adapters.sqs.errors import MALFORMED_INPUT, SqsError

UNCHECKED_BYTES_MAX: Final = 65_536  # a smaller body cannot hold too many
ELEMENTS_MAX: Final = 10_000  # ten messages with ten attributes each have 700


def check_elements(body: bytes, elements_max: int) -> None:
    """Refuse JSON with too many names and values. Error: ``SqsError`` (MALFORMED_INPUT)."""
    if len(body) <= UNCHECKED_BYTES_MAX:
        return
    texts = body
    if b"\\" in body:  # an escaped quotation mark does not end a text
        texts = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if texts.count(b'"') <= 2 * elements_max:
        structure = b"".join(texts.split(b'"')[::2])
        found = structure.count(b",") + structure.count(b"[") + structure.count(b"{")
        if found <= elements_max:
            return
    raise SqsError(MALFORMED_INPUT, f"the body has more than {elements_max} names and values")
