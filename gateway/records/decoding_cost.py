"""Cost of decoding a batch, from its header; costly batches are decoded in a thread."""

from typing import Final

from gateway.model import COMPRESSION_MASK, BatchHeader

LOOP_WORK_MAX: Final = 32_768  # by ``work_of``; what is above is decoded in a thread


def decoding_cost_of(header: BatchHeader) -> int:
    """Return an upper estimate of the cost of decoding a batch, in records (2 us each).

    A byte that is compressed may become a thousand, which takes as long as a record.
    """
    is_compressed = header.attributes & COMPRESSION_MASK
    return header.record_count + (header.size_bytes if is_compressed else 0)


def is_large(header: BatchHeader) -> bool:
    """Say whether a batch must be decoded in a thread."""
    return not header.is_control and decoding_cost_of(header) > LOOP_WORK_MAX
