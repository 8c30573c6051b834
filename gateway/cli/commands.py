"""All commands but ``serve``: where each is, and the first line of its help."""

from collections.abc import Mapping
from typing import Final

from gateway.cli.late_commands import LateCommand

COMMANDS: Final[Mapping[str, LateCommand]] = {
    "init": LateCommand(
        "gateway.cli.config_commands",
        "init",
        "Write a config file with the usual keys, their meanings and their defaults.",
    ),
    "config": LateCommand(
        "gateway.cli.config_commands", "config_app", "The config file: its schema."
    ),
    "status": LateCommand(
        "gateway.cli.status",
        "status",
        "Show a node on one screen: addresses, counts, backlog, disk and warnings.",
    ),
    "send": LateCommand(
        "gateway.cli.send",
        "send",
        "Append a record to a topic, or one for each line of standard input.",
    ),
    "tail": LateCommand(
        "gateway.cli.tail",
        "tail",
        "Print the last records of a topic, and with --follow those that come.",
    ),
    "check-config": LateCommand(
        "gateway.cli.check_config",
        "check_config",
        "Print the effective settings as TOML, marking what differs from the defaults.",
    ),
    "topics": LateCommand("gateway.cli.topics", "topics_app", "Topics of a running node."),
    "groups": LateCommand(
        "gateway.cli.groups", "groups_app", "Consumer and share groups of a running node."
    ),
    "queues": LateCommand("gateway.cli.queues", "queues_app", "Queues of a running node."),
    "exchanges": LateCommand(
        "gateway.cli.exchanges", "exchanges_app", "Exchanges of a running node."
    ),
    "bindings": LateCommand(
        "gateway.cli.exchanges", "bindings_app", "Bindings of exchanges of a running node."
    ),
    "dlq": LateCommand("gateway.cli.dlq", "dlq_app", "Dead letters of a running node."),
    "clients": LateCommand(
        "gateway.cli.clients", "clients_app", "Connections to a running node."
    ),
    "mqtt": LateCommand("gateway.cli.mqtt", "mqtt_app", "MQTT sessions of a running node."),
    "users": LateCommand("gateway.cli.users", "users_app", "Users of a running node."),
    "rules": LateCommand("gateway.cli.rules", "rules_app", "Access rules of a running node."),
    "quotas": LateCommand(
        "gateway.cli.quotas",
        "quotas_app",
        "Client quotas of a running node; <default> is for all others.",
    ),
    "transactions": LateCommand(
        "gateway.cli.transactions",
        "transactions_app",
        "Transactions of Kafka producers on a running node.",
    ),
    "log": LateCommand("gateway.cli.log", "log_app", "The log's files on the disk."),
    "pipeline": LateCommand(
        "gateway.cli.pipeline",
        "pipeline_app",
        "Jobs on Spark over the log: topics as lake tables, checks, reports.",
    ),
    "export": LateCommand(
        "gateway.cli.deployment",
        "export",
        "Write topics, queues, exchanges, users and rules as a file, without messages.",
    ),
    "import": LateCommand(
        "gateway.cli.deployment",
        "import_document",
        "Make what a file has and the node has not; what is there stays as it is.",
    ),
    "apply": LateCommand(
        "gateway.cli.deployment",
        "apply",
        "Make the node as a file says; only what its table [delete] names is deleted.",
    ),
    "backup": LateCommand(
        "gateway.cli.backup",
        "backup",
        "Back a running node up: files are linked, so on its own disk it takes little space.",
    ),
    "restore": LateCommand(
        "gateway.cli.backup", "restore", "Check a backup and put it into a new data directory."
    ),
    "recover-metadata": LateCommand(
        "gateway.cli.recover",
        "recover_metadata",
        "Rebuild the metadata store's topics from the log of a stopped node.",
    ),
    "reshard": LateCommand(
        "gateway.cli.reshard", "reshard", "Give a stopped node's data another number of shards."
    ),
    "bench": LateCommand(
        "gateway.cli.bench",
        "bench",
        "Produce and consume through the running node's Kafka endpoint; print the rates.",
    ),
}
