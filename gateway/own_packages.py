"""Check that Python finds Headgate's own packages, and not others of the same names.

Names such as ``adapters`` and ``pipeline`` are other distributions', too. One of these in the same
environment, or a folder of that name earlier on the path, would be imported in place of ours, or
has overwritten its files.
"""

import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

FIRST_WORDS: Final[Mapping[str, bytes]] = {
    "adapters": b'"""One folder per protocol.',
    "features": b'"""Shared feature blocks:',
    "storage_adapters": b'"""Storage adapters:',
    "console": b'"""Console of a node:',
    "pipeline": b'"""Data pipeline:',
}
"""Beginning of the ``__init__.py`` of each package that Headgate imports beside ``gateway``."""


def check_own_packages() -> None:
    """End the process with a line that says which package is not ours, and what to do.

    No package is imported.
    """
    wrong = list(_shadowed())
    if wrong:
        names = ", ".join(f"{name} ({path})" for name, path in wrong)
        sys.exit(
            f"headgate: not Headgate's own package: {names}.\n"
            "Another distribution or folder has that name. Install Headgate in an environment "
            "of its own (python -m venv), and start it in a folder without such a one."
        )


def _shadowed() -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each package that is not ours."""
    root = Path(__file__).resolve().parents[1]
    for name, words in FIRST_WORDS.items():
        spec = find_spec(name)
        origin = None if spec is None else spec.origin
        if origin is None:
            yield name, "missing"
            continue
        path = Path(origin).resolve()
        if path != root / name / "__init__.py" or not path.read_bytes().startswith(words):
            yield name, str(path.parent)
