"""Print the components of Headgate as CycloneDX 1.6 JSON, made from requirements.lock.

A component is a locked distribution: its version, the SHA-256 of each of its files, and its licence
as the installed distribution states it. The same tree gives the same bytes: no time is in it, and
the serial number is made from the content.
"""

import json
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

ROOT: Final = Path(__file__).resolve().parents[1]
LOCKED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
SHA256: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
SEPARATORS: Final = re.compile(r"[-_.]+")
REQUIRED: Final = re.compile(r"^[A-Za-z0-9._-]+")
LICENCE_NAME_CHARS_MAX: Final = 80  # some distributions state the whole text


def components(lock: str) -> list[dict[str, Any]]:
    """Return a component for each distribution of a lock file, in its order."""
    found: list[dict[str, Any]] = []
    for line in lock.splitlines():
        locked = LOCKED.match(line)
        if locked is not None:
            found.append(_component(locked[1], locked[2]))
        found_hashes = [
            {"alg": "SHA-256", "content": content} for content in SHA256.findall(line)
        ]
        if found_hashes:
            found[-1].setdefault("hashes", []).extend(found_hashes)
    return found


def bill(project: dict[str, Any], lock: str) -> dict[str, Any]:
    """Return the bill of materials of a ``[project]`` table and its lock file."""
    parts = components(lock)
    direct = {_normal(REQUIRED.findall(line)[0]) for line in project["dependencies"]}
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    content = json.dumps(parts, sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, own + content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"license": {"id": project["license"]}}],
                "purl": own,
            }
        },
        "components": parts,
        "dependencies": [
            {
                "ref": own,
                "dependsOn": [part["bom-ref"] for part in parts if part["name"] in direct],
            }
        ],
    }


def _component(name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{_normal(name)}@{version}"
    licences = _licences(name)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": _normal(name),
        "version": version,
        "purl": purl,
        **({"licenses": licences} if licences else {}),
    }


def _normal(name: str) -> str:
    return SEPARATORS.sub("-", name).lower()


def _licences(name: str) -> list[dict[str, Any]]:
    """Return the licence of an installed distribution; nothing where it states none."""
    try:
        stated = metadata(name)
    except PackageNotFoundError:
        return []
    if "License-Expression" in stated:
        return [{"expression": stated["License-Expression"]}]
    named = stated["License"] if "License" in stated else ""  # noqa: SIM401 - no mapping
    if named and "\n" not in named and len(named) <= LICENCE_NAME_CHARS_MAX:
        return [{"license": {"name": named}}]
    classified = [
        line.rsplit(" :: ", 1)[1]
        for line in stated.get_all("Classifier") or []
        if line.startswith("License :: ") and line.count(" :: ") > 1
    ]
    return [{"license": {"name": line}} for line in classified]


def main() -> None:
    """Print it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    made = bill(project, (ROOT / "requirements.lock").read_text())
    sys.stdout.write(json.dumps(made, indent=2) + "\n")


if __name__ == "__main__":
    main()
