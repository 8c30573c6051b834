"""``headgate status``: a node on one screen."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import of_node
from gateway.cli.output import format_size, format_span, print_json, print_rows, say


@of_node
def status(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """Show a node on one screen: addresses, counts, backlog, disk and warnings."""
    node, seen = client.get("node"), client.get("overview")
    drift = client.get("deployment", "drift")["changes"]
    if as_json:
        print_json({"node": node, **seen, "drift": drift})
        return
    for line in _head(node):
        say(line)
    say("")
    print_rows(node["endpoints"], ["protocol", "name", "url"], as_json=False)
    say("")
    counts = seen["counts"]
    say("  ".join(f"{counts[key]:,} {key}" for key in counts))
    _print_backlog(seen)
    for warning in seen["warnings"]:
        say(f"warning: {warning['text']}")
    for line in _drift_lines(drift):
        say(line)


def _head(node: Mapping[str, Any]) -> Iterator[str]:
    state = "ready" if node["is_ready"] else "not ready"
    up = format_span(node["uptime_ms"])
    yield f"headgate {node['version']}  {state}, up {up}, pid {node['pid']}"
    yield f"storage {node['storage']} in {node['data_dir']}"
    disk = node["disk"]
    free = f"{format_size(disk['free_bytes'])} of {format_size(disk['total_bytes'])} free"
    login = "required" if node["authentication_required"] else "not required"
    memory = node["resident_bytes"]
    used = "" if memory is None else f", memory {format_size(memory)}"
    yield f"disk {free}{used}, login {login}"


def _drift_lines(drift: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield where the node differs from its config file: what applying the file would do."""
    for one in drift:
        why = f" ({', '.join(one['details'])})" if one["details"] else ""
        yield f"drift: {one['action']} {one['kind']} {one['name']}{why}"
    if drift:
        yield 'the config file says otherwise: headgate apply FILE, or declared = "enforce"'


def _print_backlog(seen: Mapping[str, Any]) -> None:
    behind = [one for one in seen["groups"] if one["lag"]]
    waiting = [one for one in seen["queues"] if one["ready"] or one["in_flight"]]
    if behind:
        say("\ngroups that are furthest behind")
        print_rows(behind, ["name", "lag"], as_json=False)
    if waiting:
        say("\nlongest queues")
        print_rows(waiting, ["name", "ready", "in_flight", "delayed"], as_json=False)
    if behind or waiting or seen["warnings"]:
        say("")
