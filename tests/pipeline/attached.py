"""``python -m tests.pipeline.attached JOB ...``: a job in a Spark that is there already.

It is a process of its own for tests that kill it. ``PYSPARK_GATEWAY_PORT`` and
``PYSPARK_GATEWAY_SECRET`` say where the JVM listens, as for what spark-submit starts.
"""

import os
import sys

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from gateway.cli import app
from tests.pipeline.running import borrowed


def main(arguments: list[str]) -> None:
    """Run a job and end."""
    jvm = launch_gateway()
    found = jvm.jvm.org.apache.spark.SparkContext.getOrCreate()
    context = jvm.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(found)
    conf = SparkConf(_jvm=jvm.jvm, _jconf=found.conf())
    with borrowed(SparkSession(SparkContext(gateway=jvm, jsc=context, conf=conf))):
        status = app.main(["pipeline", *arguments])
    sys.stdout.flush()
    os._exit(status)  # past what would stop the JVM, which is not ours


if __name__ == "__main__":
    main(sys.argv[1:])
