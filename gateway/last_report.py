"""Last report of a Spark job, kept in the data directory for the console.

A job writes it when it ends; the node reads it when somebody asks. It is a small JSON document,
replaced as a whole.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FILE: Final = "last_report.json"
BYTES_MAX: Final = 262_144
"""Size of the document; a job keeps only its largest topics."""


def write_last_report(data_dir: Path, document: Mapping[str, Any]) -> None:
    """Replace the report. Errors: ``OSError``, also for a folder that is not there."""
    data = json.dumps(document, ensure_ascii=False).encode()
    if len(data) > BYTES_MAX:
        raise OSError(f"the report has {len(data)} bytes, more than {BYTES_MAX}")
    descriptor, name = tempfile.mkstemp(prefix=f"{FILE}.", dir=data_dir)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        # The node may run as another user of the directory's group.
        Path(name).chmod(0o640)
        Path(name).replace(data_dir / FILE)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_last_report(data_dir: Path) -> dict[str, Any] | None:
    """Return the report; None where no job has left one, or it cannot be read."""
    try:
        with (data_dir / FILE).open("rb") as file:
            data = file.read(BYTES_MAX + 1)
        found = json.loads(data) if len(data) <= BYTES_MAX else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
