"""``headgate pipeline``: Spark jobs over a node's data, without load on the node."""

from gateway.cli.pipeline_archive import archive
from gateway.cli.pipeline_audit import audit
from gateway.cli.pipeline_backfill import backfill
from gateway.cli.pipeline_compact import compact
from gateway.cli.pipeline_dlq import pipeline_dlq_app
from gateway.cli.pipeline_report import report
from gateway.cli.pipeline_snapshot import snapshot
from gateway.cli.synonyms import command_group

pipeline_app = command_group(
    "Jobs on Spark over the log: topics as lake tables, checks, reports."
)


@pipeline_app.callback()
def _pipeline() -> None:
    """Group the commands."""


for command in (archive, audit, backfill, compact, report, snapshot):
    pipeline_app.command()(command)
pipeline_app.add_typer(pipeline_dlq_app, name="dlq")
