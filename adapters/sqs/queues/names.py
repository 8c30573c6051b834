"""Legal names of queues, and names of FIFO queues.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html
"""

import re
from typing import Final

from adapters.sqs.errors import invalid_parameter

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")


def is_fifo_name(name: str) -> bool:
    """Return whether a name is a FIFO queue's; SDKs decide by the name too."""
    return name.endswith(".fifo")


def check_queue_name(name: str, *, fifo: bool) -> None:
    """Refuse an illegal name for a new queue. ``fifo``: FifoQueue was true.

    Names have 1 to 80 letters, digits, hyphens and underscores. Names of FIFO queues end in
    ``.fifo``, which counts. Errors: ``InvalidParameterValue``.
    """
    if fifo and not _FIFO_NAME.fullmatch(name):
        msg = (
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length."
        )
        raise invalid_parameter(msg)
    if not fifo and not _NAME.fullmatch(name):
        msg = (
            "Can only include alphanumeric characters, hyphens, or underscores. "
            "1 to 80 in length"
        )
        raise invalid_parameter(msg)
