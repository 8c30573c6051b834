"""A job on a standalone cluster of two workers instead of in the command's own process."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.archive.archives import SETTINGS, is_whole, options, produce, rows
from tests.pipeline.running import QUICK_JAVA, run_alone
from tests.support.gateway import Gateway
from tests.support.spark_cluster import Cluster, environment, spark_cluster
from tests.support.topics import create_topic

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster"), env=QUICK_JAVA) as running:
        yield running


def test_workers_of_a_cluster_write_the_table_together(
    cluster: Cluster, tmp_path: Path
) -> None:
    with Gateway(tmp_path / "data", SETTINGS) as gateway:
        topic = create_topic(gateway.bootstrap, partitions=4)
        produce(gateway, topic, range(40_000))
        to = tmp_path / "lake"

        done = run_alone(
            "archive",
            *options(gateway.data_dir, topic, to, "--json"),
            master=cluster.master,
            env=environment(),
        )

    assert done.json["rows"] == 40_000
    is_whole(rows(to, "delta"), 40_000, 4)
    assert cluster.used() == cluster.work_dirs


def test_a_task_that_fails_on_a_cluster_is_one_line(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(tmp_path / "data", SETTINGS) as gateway:
        topic = create_topic(gateway.bootstrap)
        produce(gateway, topic, range(10))
        to = tmp_path / "lake"
        to.mkdir()
        (to / f"topic={topic}").write_bytes(b"in the way of the folder")

        done = run_alone(
            "archive",
            *options(gateway.data_dir, topic, to),
            master=cluster.master,
            env=environment(),
        )

    assert done.status == 1
    assert re.fullmatch(r"headgate: [^\n]*topic=[^\n]*Not a directory\n", done.err)
