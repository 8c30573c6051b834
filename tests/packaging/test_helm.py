"""The Helm chart, rendered by Go's templates as Helm does: what a cluster gets fits together.

Helm itself takes minutes to build and is not used: ``helm/main.go`` has the functions of its
language that the chart uses.
"""

import copy
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config.advice import check_exposure
from gateway.config.loader import load_settings
from gateway.config.settings import NodeConfig
from tests.support.gateway import ROOT
from tests.support.toolchain import helm_renderer

pytestmark = pytest.mark.go

CHART = ROOT / "packaging" / "helm" / "headgate"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
ABOUT: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
ALL_ON = {
    "admin": {"existingSecret": "headgate-admin"},
    "insecure": True,
    "env": [{"name": "HEADGATE_STORAGE__FLUSH", "value": "never"}],
    "imagePullSecrets": [{"name": "mine"}],
    "kafka": {"advertise": "broker.example.org:9092"},
    "networkPolicy": {"enabled": True, "adminFrom": [{"podSelector": {}}]},
    "persistence": {"storageClass": "fast"},
    "podAnnotations": {"a/b": "true"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
}


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(dict(base))
    for key, value in more.items():
        is_table = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], value) if is_table else value
    return found


def render(more: Mapping[str, Any]) -> dict[str, str]:
    given = {
        "Values": merged(VALUES, more),
        "Chart": {"AppVersion": ABOUT["appVersion"], "Name": ABOUT["name"]},
        "Release": {"Name": "logs", "Namespace": "messaging", "Service": "Helm"},
    }
    done = subprocess.run(
        [helm_renderer(), CHART / "templates"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@cache
def objects(*, all_on: bool) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects of a release by kind and name."""
    files = render(ALL_ON if all_on else {})
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    found = [one for text in texts for one in yaml.safe_load_all(text) if one is not None]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def pod(*, all_on: bool) -> dict[str, Any]:
    spec: dict[str, Any] = objects(all_on=all_on)["StatefulSet", "logs"]["spec"]
    return spec


def test_a_release_has_a_node_its_config_and_two_services_and_more_by_switches() -> None:
    plain = {("ConfigMap", "logs"), ("Service", "logs"), ("Service", "logs-node")}
    plain |= {("StatefulSet", "logs")}
    assert objects(all_on=False).keys() == plain
    switched = {("NetworkPolicy", "logs"), ("ServiceMonitor", "logs")}
    assert objects(all_on=True).keys() == plain | switched


@pytest.mark.parametrize("all_on", [False, True])
def test_selectors_find_the_pod(*, all_on: bool) -> None:
    found = objects(all_on=all_on)
    labels = pod(all_on=all_on)["template"]["metadata"]["labels"].items()
    selectors = [pod(all_on=all_on)["selector"]["matchLabels"]]
    selectors += [
        one["spec"]["selector"] for (kind, _), one in found.items() if kind == "Service"
    ]
    if all_on:
        selectors.append(found["NetworkPolicy", "logs"]["spec"]["podSelector"]["matchLabels"])
    assert len(selectors) == 3 + all_on
    assert all(selector and selector.items() <= labels for selector in selectors)
    monitored = found.get(("ServiceMonitor", "logs"))
    if monitored is not None:
        wanted = monitored["spec"]["selector"]["matchLabels"].items()
        assert wanted <= found["Service", "logs-node"]["metadata"]["labels"].items()
        assert not wanted <= found["Service", "logs"]["metadata"]["labels"].items()


@pytest.mark.parametrize("all_on", [False, True])
def test_names_of_ports_and_volumes_and_of_what_they_refer_to_are_there(
    *, all_on: bool
) -> None:
    found, spec = objects(all_on=all_on), pod(all_on=all_on)
    inner = spec["template"]["spec"]
    (container,) = inner["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    services = [one for (kind, _), one in found.items() if kind == "Service"]
    targets = [port["targetPort"] for one in services for port in one["spec"]["ports"]]
    probes = [container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")]
    assert {*targets, *(probe["httpGet"]["port"] for probe in probes)} == ports.keys()
    volumes = {one["name"] for one in inner["volumes"]}
    volumes |= {one["metadata"]["name"] for one in spec["volumeClaimTemplates"]}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    (config,) = [one["configMap"]["name"] for one in inner["volumes"] if "configMap" in one]
    assert ("ConfigMap", config) in found
    assert ("Service", spec["serviceName"]) in found


def test_the_secret_is_where_the_node_reads_it() -> None:
    inner = pod(all_on=True)["template"]["spec"]
    (container,) = inner["containers"]
    (secret,) = [one for one in inner["volumes"] if "secret" in one]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == secret["name"]]
    variables = {one["name"]: one["value"] for one in container["env"]}
    file = f"{mount['mountPath']}/{secret['secret']['items'][0]['path']}"
    assert variables["HEADGATE_ADMIN_PASSWORD_FILE"] == file
    assert secret["secret"]["secretName"] == "headgate-admin"


def test_the_config_and_the_variables_are_settings_of_a_node_with_users(tmp_path: Path) -> None:
    text = objects(all_on=False)["ConfigMap", "logs"]["data"]["headgate.toml"]
    inner = pod(all_on=False)["template"]["spec"]
    (container,) = inner["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    file = tmp_path / "headgate.toml"
    file.write_text(text)
    settings = load_settings(file=file, environment=environment)
    check_exposure(settings, users_configured=True)
    assert settings.node.data_dir == Path("/var/lib/headgate/data")
    kafka = settings.adapters["kafka"]
    assert getattr(kafka, "advertise", None) == "logs.messaging.svc:9092"
    ports = {one["containerPort"] for one in container["ports"]}
    assert {int(port) for port in re.findall(r'bind = ".*:(\d+)"', text)} == ports


def test_the_config_is_that_of_the_image() -> None:
    of_image = tomllib.loads((ROOT / "packaging/container/headgate.toml").read_text())
    of_image.pop("node")  # the folder of the data is a variable here
    assert tomllib.loads(VALUES["config"]) == of_image


def test_the_pod_has_no_rights_and_time_to_drain() -> None:
    inner = pod(all_on=False)["template"]["spec"]
    context = inner["containers"][0]["securityContext"]
    assert inner["securityContext"]["runAsNonRoot"] is True
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert inner["automountServiceAccountToken"] is False
    drain_s_max = NodeConfig.model_fields["drain_s_max"].default
    assert inner["terminationGracePeriodSeconds"] > drain_s_max


def test_the_notes_name_the_ports() -> None:
    notes = render({"insecure": True})["NOTES.txt"]
    assert "logs.messaging.svc" in notes
    assert all(name in notes for name in VALUES["service"]["ports"])
    assert "WARNING" in notes
    assert "WARNING" not in render({})["NOTES.txt"]


# --- values and their schema


def unknown(values: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the keys that a schema does not know, where it is closed."""
    known = schema.get("properties", {})
    for key, value in values.items():
        if key not in known and schema.get("additionalProperties") is False:
            yield f"{path}{key}"
        elif isinstance(value, dict):
            yield from unknown(value, known.get(key, {}), f"{path}{key}.")


def test_the_schema_knows_every_value_and_no_other() -> None:
    assert list(unknown(VALUES, SCHEMA, "")) == []
    assert list(unknown(ALL_ON, SCHEMA, "")) == []
    assert list(unknown({"image": {"tga": "1"}}, SCHEMA, "")) == ["image.tga"]
    assert SCHEMA["properties"].keys() - {"global"} == VALUES.keys()


def test_the_versions_are_those_of_headgate() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ABOUT["appVersion"] == ABOUT["version"] == project["version"]
