"""The accessibility checker of the console's tests, axe-core, installed once by npm.

``python -m tests.support.console_toolchain`` installs it, so that no test has to.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support import toolchain

_FOLDER: Final = toolchain.ROOT / "tests/console/axe"


def axe() -> Path:
    """Return the script that checks a page."""
    sources = [_FOLDER / "package.json", _FOLDER / "package-lock.json"]

    def command(made: Path) -> Sequence[str]:
        for source in sources:
            shutil.copy(source, made)
        prefix = str(made.resolve())
        return ["npm", "ci", "--prefix", prefix, "--no-audit", "--no-fund", "--silent"]

    return toolchain.built("node-axe", sources, command) / "node_modules/axe-core/axe.min.js"


if __name__ == "__main__":
    toolchain.build(("chromium", "npm"), axe)
