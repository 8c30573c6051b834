"""The S3 server that the tests run and that is not of Python: versitygw, built once.

``python -m tests.support.s3_toolchain`` builds it, so that no test has to.
"""

from pathlib import Path
from typing import Final

from tests.support.toolchain import ROOT, build, built, need

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


if __name__ == "__main__":
    build(("go",), versitygw_program)
