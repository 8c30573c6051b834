"""Stable names of log events: ``event_name`` in the JSON form of a line.

A name stays as it is when the words of its line change, and is never used for another event.
docs/log-events.md lists them, and a test compares the list, this table and the code.
"""

from typing import Any, Final

import structlog

CONFIG_WARNING: Final = "config.warning"
"""Warning about the settings, whose words are its own."""
LIBRARY_MESSAGE: Final = "library.message"
"""Line of a library, in its words."""

EVENT_NAMES: Final = {
    "starting": "node.starting",
    "ready": "node.ready",
    "draining": "node.draining",
    "storage failed, the node stops": "node.storage_failed",
    "SIGHUP while starting: everything is read just now": "node.reload_ignored",
    "the supervisor cannot be notified": "node.not_notified",
    "settings read anew": "node.reloaded",
    "settings not read anew, the old ones stay": "node.not_reloaded",
    "these settings hold from the next start on": "node.needs_restart",
    "users: login is not required before the next start": "node.login_needs_restart",
    "certificates read anew": "node.certificates_reloaded",
    "certificates not read anew, the old ones stay": "node.certificates_not_reloaded",
    "no file descriptors left": "node.no_descriptors",
    "the data directory is accessible to all users": "node.data_dir_open",
    "the data directory was accessible to all users and is private now": "node.data_dir_closed",
    "the disk is full: appends are refused until there is room": "node.disk_full",
    "the disk is full: the log takes no records until there is room": "log.disk_full",
    "declared and enforced": "config.declared_enforced",
    "declared but not enforced": "config.declared_differs",
    "peer fault": "peer.fault",
    "peer faults": "peer.faults",
    "connection closed by a bug": "peer.bug",
    "audit": "audit.change",
    "login refused": "audit.login_refused",
    (
        "auth.default is not set: what no rule is about is allowed to every user, as "
        "before; set it to allow or deny"
    ): "auth.default_not_set",
    "rules of adapters that are off are kept, without effect": "auth.rules_without_effect",
    "no record beside the log that login is required": "auth.login_record_missing",
    "keys of tokens cannot be read yet": "auth.keys_not_read",
    "keys of tokens not read anew, the old ones stay": "auth.keys_not_reloaded",
    "metadata store failed": "metadata.failed",
    "the database is large: only a part was checked": "metadata.partly_checked",
    "SQLite's journal was not copied": "metadata.journal_not_copied",
    "backup begins": "backup.begun",
    "backup done": "backup.done",
    "backup failed": "backup.failed",
    "a batch is damaged": "batch.damaged",
    "not trimmed": "memory.not_trimmed",
    "scrub ended early": "scrub.ended_early",
    "settling failed; it is tried again": "settling.failed",
    "settling goes on": "settling.recovered",
    "compacted": "compaction.done",
    "not compacted": "compaction.skipped",
    "compaction ended early": "compaction.ended_early",
    "retention could not truncate": "retention.not_truncated",
    "retention pass ended early": "retention.ended_early",
    "key indexes could not be made": "key_index.failed",
    "no snapshot of producer state": "producers.not_saved",
    "producer state not handed over": "producers.not_handed_over",
    "changes of metadata not read": "metadata.changes_not_read",
    "no notifications of metadata": "metadata.not_notified",
    "another node has made a topic of this name": "topic.replaced",
    "topic not deleted from the storage": "topic.not_deleted",
    "deleted topic not forgotten": "topic.not_forgotten",
    "shards are not opened": "shards.not_opened",
    "shards left while they were opened": "shards.left_while_opening",
    "keys moved to their shards": "shards.keys_moved",
    "the end of a transfer is not written": "transfer.end_not_written",
    "transferred records are dropped": "transfer.records_dropped",
    "an assignor failed": "groups.assignor_failed",
    "patterns of a group failed": "groups.patterns_failed",
    "offsets not expired": "groups.offsets_not_expired",
    "expired offsets not removed": "groups.expired_offsets_not_removed",
    "positions in a deleted topic not removed": "groups.positions_not_removed",
    "transaction not aborted": "transactions.not_aborted",
    "transactional ids not expired": "transactions.ids_not_expired",
    "marker of a transaction refused": "transactions.marker_refused",
    "transaction not completed": "transactions.not_completed",
    "transactions of partitions not saved": "transactions.not_saved",
    "recent history not replayed": "exchanges.history_not_replayed",
    "delayed messages are damaged": "delays.damaged",
    "a delayed message is dropped": "delays.dropped",
    "delayed messages are moved later": "delays.move_later",
    "delayed messages moved to their shards": "delays.moved",
    "delayed messages not moved": "delays.not_moved",
    "delayed messages not read": "delays.not_read",
    "delayed messages not read ahead": "delays.not_read_ahead",
    "delayed messages cannot be read": "delays.unreadable",
    "delayed messages not rewritten": "delays.not_rewritten",
    "append of due messages refused": "delays.append_refused",
    "due messages are not routed": "delays.not_routed",
    "no queue of due messages yet": "delays.no_queue_yet",
    "purged messages come back at the next start": "delays.purged_come_back",
    "a consumer has failed at the end of its queue": "queues.consumer_failed",
    "dead letters stay where they are": "queues.dead_letters_stay",
    "messages cannot be read": "queues.unreadable",
    "taken messages cannot be delivered": "queues.not_delivered",
    "a holder has failed at the end of its lease": "queues.holder_failed",
    "messages taken cannot be read": "queues.taken_unreadable",
    "first messages of a queue cannot be read": "queues.first_unreadable",
    "refused messages are dropped": "queues.refused_dropped",
    "unused queue deleted": "queues.unused_deleted",
    "unused queue not deleted": "queues.unused_not_deleted",
    "queue holds nothing": "queues.holds_nothing",
    "queue is not fed": "queues.not_fed",
    "queue position is above the log end and was reset": "queues.position_reset",
    "retention of a queue ended early": "queues.retention_ended_early",
    "retention of queues ended early": "queues.all_retention_ended_early",
    "upkeep of queues ended early": "queues.upkeep_ended_early",
    "policy left out": "amqp.policy_left_out",
    "policy not applied": "amqp.policy_not_applied",
    "catching up": "mqtt.catching_up_failed",
    "feed": "mqtt.feed_failed",
    "message not delivered": "mqtt.not_delivered",
    "not delivered again": "mqtt.not_redelivered",
    "not delivered to others": "mqtt.not_shared",
    "not retained": "mqtt.not_retained",
    "will not published": "mqtt.will_not_published",
    "session not written down": "mqtt.session_not_saved",
    "what is on its way was not written down": "mqtt.journal_not_written",
    "records of sessions that are over are removed": "mqtt.sessions_removed",
    "expired retained messages stay for now": "mqtt.retained_stay",
    "identifiers of QoS 2 stay for now": "mqtt.identifiers_stay",
    (
        "larger packets are refused: their topic takes less than packet_bytes_max"
    ): "mqtt.packets_refused",
    "topic of a route not made": "mqtt.route_without_topic",
    "the bucket is away": "s3.away",
    "the bucket is back": "s3.back",
    "a batch in the bucket is damaged": "s3.batch_damaged",
    "an object is damaged; it is left as it is": "s3.object_damaged",
    "a piece of the bucket cannot be read by the scrub": "s3.scrub_skipped",
    "a scrub failed": "s3.scrub_failed",
    "a sweep ended early": "s3.sweep_ended_early",
    "a sweep failed": "s3.sweep_failed",
    "no commit; it is tried again": "s3.not_committed",
    "no merge": "s3.not_merged",
    "no rows": "s3.rows_not_read",
    "log starts are not kept": "s3.log_starts_not_kept",
    "the database is back": "s3.database_back",
    "the database went while it committed": "s3.commit_unknown",
    "the disk cache is off": "s3.disk_cache_off",
    "spans cannot be sent": "traces.not_sent",
}
"""Names by the words of a line."""


def add_event_name(
    _logger: object, _method: str, line: structlog.types.EventDict
) -> structlog.types.EventDict:
    """Add the stable name of a line's event, where it has none yet; see structlog's processors."""
    name: Any = EVENT_NAMES.get(line["event"])
    if name is not None:
        line.setdefault("event_name", name)
    return line


def without_event_name(
    _logger: object, _method: str, line: structlog.types.EventDict
) -> structlog.types.EventDict:
    """Remove the name from a line for people, who read the words."""
    line.pop("event_name", None)
    return line
