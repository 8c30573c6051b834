"""The installed version of Headgate, and the command that adds an extra to this installation."""

import json
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from shlex import quote
from typing import Any, Final
from urllib.parse import unquote, urlsplit

_NAME: Final = "headgate"
_CHECKOUT: Final = Path(__file__).resolve().parents[1]


def installed_version() -> str:
    """Return the installed version; ``unknown`` in a checkout that was never installed."""
    found = _installed()
    return "unknown" if found is None else found.version


def install_command(extra: str) -> str:
    """Return the command that installs the libraries of ``extra`` into this installation."""
    found = _installed()
    if found is None:
        return f"{_installer('')} -e {quote(f'{_CHECKOUT}[{extra}]')}"
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    installer = (found.read_text("INSTALLER") or "").strip()
    return f"{_installer(installer)} {requirement(extra, origin)}"


def requirement(extra: str, origin: Mapping[str, Any]) -> str:
    """Return the installer's argument; ``origin`` is direct_url.json, empty for an index.

    >>> requirement("s3", {})
    "'headgate[s3]'"
    >>> requirement("s3", {"url": "file:///src/headgate", "dir_info": {"editable": True}})
    "-e '/src/headgate[s3]'"
    >>> requirement("s3", {"url": "https://a.example/headgate.whl", "archive_info": {}})
    "'headgate[s3] @ https://a.example/headgate.whl'"
    """
    url = str(origin.get("url", ""))
    if not url:
        return quote(f"{_NAME}[{extra}]")
    if "dir_info" in origin:
        folder = quote(f"{unquote(urlsplit(url).path)}[{extra}]")
        return f"-e {folder}" if origin["dir_info"].get("editable") else folder
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return quote(f"{_NAME}[{extra}] @ {url}")


def _installed() -> Distribution | None:
    try:
        return distribution(_NAME)
    except PackageNotFoundError:
        return None


def _installer(name: str) -> str:
    """Return the command that installs into this process's environment, active or not."""
    if name == "uv":
        return f"uv pip install --python {quote(sys.executable)}"
    pip = shutil.which("pip")
    folder = Path(sys.executable).parent
    is_ours = pip is not None and Path(pip).parent.samefile(folder)
    return f"{'pip' if is_ours else f'{quote(sys.executable)} -m pip'} install"
