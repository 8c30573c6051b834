"""Progress of the tasks of one Spark job, reported while the driver waits for its result."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_EVERY_S: Final = 0.5


@contextmanager
def counted(
    spark: "SparkSession", tasks: int, size_bytes: int, on_bytes: Callable[[int], None]
) -> "Iterator[None]":
    """Report to ``on_bytes`` each part of ``size_bytes`` whose tasks have ended.

    The parts are equal: one task for each of the splits of similar size. Later stages of Spark do
    not count. At the end the whole size has been reported.
    """
    group = uuid4().hex
    spark.sparkContext.setJobGroup(group, "headgate")
    is_over = threading.Event()
    told_bytes = 0

    def tell(done: int) -> None:
        nonlocal told_bytes
        upto_bytes = size_bytes * min(done, tasks) // max(tasks, 1)
        if upto_bytes > told_bytes:
            on_bytes(upto_bytes - told_bytes)
            told_bytes = upto_bytes

    def look() -> None:
        while not is_over.wait(_LOOK_EVERY_S):
            tell(_ended(spark, group, tasks))

    thread = threading.Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    tell(tasks)


def _ended(spark: "SparkSession", group: str, tasks: int) -> int:
    """Return the number of ended tasks in the stages with one task per split."""
    tracker = spark.sparkContext.statusTracker()
    stages = [
        stage
        for job_id in tracker.getJobIdsForGroup(group)
        if (job := tracker.getJobInfo(job_id)) is not None
        for stage_id in job.stageIds
        if (stage := tracker.getStageInfo(stage_id)) is not None
    ]
    return max((one.numCompletedTasks for one in stages if one.numTasks == tasks), default=0)
