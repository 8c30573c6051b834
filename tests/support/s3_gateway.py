"""Any suite's gateways over S3: ``HEADGATE_TEST_STORAGE=s3`` gives each a prefix of one bucket.

The server is started with the first gateway and ends with the process of the tests.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.s3_servers import S3Server, versitygw

IS_ON: Final = os.environ.get("HEADGATE_TEST_STORAGE", "") == "s3"
_FLUSH_INTERVAL_MS: Final = 5
# What a suite asks of the local log so that it settles at once, and what does so here.
_SETTLES_AT_ONCE: Final = "storage.settle_after_ms"
_MERGES_AT_ONCE: Final = {"storage.merge_objects_min": 2, "storage.merge_after_ms": 0}


@functools.cache
def session_server() -> S3Server:
    """Return the server that all gateways of this process share; started when first asked for."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-s3-"))
    return stack.enter_context(versitygw(Path(folder)))


def on_s3(settings: Mapping[str, object], data_dir: Path) -> dict[str, object]:
    """Return a gateway's settings with S3 as its storage, ones of the local log left out.

    The same data directory gets the same prefix, so that a restart finds its data.
    """
    if "storage.adapter" in settings:
        return dict(settings)
    others = {key: value for key, value in settings.items() if not key.startswith("storage.")}
    place = hashlib.sha256(str(data_dir).encode()).hexdigest()[:16]
    return {
        **others,
        **session_server().settings(prefix=f"{place}/"),
        "storage.flush_interval_ms": _FLUSH_INTERVAL_MS,
        **(_MERGES_AT_ONCE if settings.get(_SETTLES_AT_ONCE) == 0 else {}),
    }
