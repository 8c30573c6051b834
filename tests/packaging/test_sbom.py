"""The bill of materials lists what requirements.lock installs, and nothing else."""

import json
import subprocess
import sys
from functools import cache
from typing import Any

from tests.support.gateway import ROOT


def made() -> str:
    done = subprocess.run(
        [sys.executable, "scripts/make_sbom.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@cache
def bill() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made())
    return found


def locked() -> dict[tuple[str, str], list[str]]:
    """Return the hashes of each name and version of the lock file, read in another way."""
    lines = (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines()
    found = {}
    for line in lines:
        if line and not line.startswith("#"):
            pinned, *hashes = line.split(" --hash=sha256:")
            name, version = pinned.split(";")[0].strip().split("==")
            found[name, version] = [one.strip() for one in hashes]
    return found


def test_every_locked_distribution_is_there_with_its_version_and_hashes() -> None:
    listed = {
        (one["name"], one["version"]): [each["content"] for each in one["hashes"]]
        for one in bill()["components"]
    }
    assert len(listed) > 20
    assert listed == locked()


def test_a_component_has_a_package_url_and_a_licence() -> None:
    for one in bill()["components"]:
        assert one["purl"] == one["bom-ref"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert {each["alg"] for each in one["hashes"]} == {"SHA-256"}
    without = [one["name"] for one in bill()["components"] if not one.get("licenses")]
    assert without == []


def test_headgate_itself_depends_on_components_that_are_listed() -> None:
    own = bill()["metadata"]["component"]
    (edge,) = bill()["dependencies"]
    refs = {one["bom-ref"] for one in bill()["components"]}
    assert (own["name"], own["licenses"]) == ("headgate", [{"license": {"id": "Apache-2.0"}}])
    assert edge["ref"] == own["bom-ref"]
    assert set(edge["dependsOn"]) <= refs
    assert len(edge["dependsOn"]) > 15


def test_the_same_tree_gives_the_same_bytes() -> None:
    assert made() == made()
