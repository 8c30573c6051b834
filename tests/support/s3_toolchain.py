"""The S3 server that the tests run and that is not of Python: versitygw, built once.

``python -m tests.support.s3_toolchain`` builds it, so that no test has to.
"""

import sys
from pathlib import Path
from typing import Final

from tests.support.toolchain import ROOT, ToolMissing, built, need

_MODULE: Final = ROOT / "tests/storage_adapters/s3/versitygw"
_PACKAGE: Final = "github.com/versity/versitygw/cmd/versitygw"


def versitygw_program() -> Path:
    """Return the server; it keeps objects as files of a folder. ``go.mod`` pins its version."""
    need("go")
    folder = built(
        "versitygw",
        [_MODULE / "go.mod", _MODULE / "go.sum"],
        lambda folder: [
            "go", "build", "-C", str(_MODULE), "-o", str(folder / "versitygw"), _PACKAGE,
        ],
    )  # fmt: skip
    return folder / "versitygw"


def main() -> None:
    """Build it; exit status 1 names what is missing."""
    try:
        sys.stdout.write(f"{versitygw_program()}\n")
    except ToolMissing as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
