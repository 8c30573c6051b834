"""A node with an example's protocol, which gives half of its shards away and takes them back."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from gateway.model import TopicName
from gateway.placement import shard_of
from tests.gateway.test_registry import install
from tests.support.placed_node import SHARDS, PlacedNode

GROUP: Final = "headgate.adapters"
NAMES: Final = 24
"""Topics, and queues, of which the hash puts some into either half."""


class Half(NamedTuple):
    """A node, and a topic and a queue of either half of its shards."""

    node: PlacedNode
    kept: str
    given: str
    kept_queue: str
    given_queue: str


def make_known(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an example's protocol known to this process until the test ends."""
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    points = [f"{name} = {value}" for name, value in project["entry-points"][GROUP].items()]
    site = tmp_path / "site"
    site.mkdir()
    install(site, project["name"], "\n".join([f"[{GROUP}]", *points]))
    monkeypatch.syspath_prepend(str(example))
    monkeypatch.syspath_prepend(str(site))


@contextmanager
def running_half(
    folder: Path, adapter: str, settings: Mapping[str, object], **placed: Any
) -> Iterator[Half]:
    """Start a node; it has all of its shards unless ``placed`` says otherwise."""
    topics = [f"orders-{n}" for n in range(NAMES)]
    queues = [f"jobs-{n}" for n in range(NAMES)]
    declared = dict.fromkeys(topics, 1)
    with PlacedNode(folder, [adapter], settings, declared, queues=queues, **placed) as node:
        is_away = {name: _is_upper(node, name) for name in [*topics, *queues]}
        yield Half(
            node,
            *(next(n for n in topics if is_away[n] is away) for away in (False, True)),
            *(next(n for n in queues if is_away[n] is away) for away in (False, True)),
        )


def _is_upper(node: PlacedNode, name: str) -> bool:
    topic = node.kernel.topics.get(TopicName("default", name))
    return shard_of(topic, 0, node.placement) >= SHARDS // 2
