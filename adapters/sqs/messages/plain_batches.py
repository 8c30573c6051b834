"""Sending of batches of plain messages, the most common kind, as one run.

They are checked, appended and answered as by ``outgoing.prepare``, ``sending.send`` and
``outgoing.send_result``, but without an object per message.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from adapters.sqs.call import Call, Params
from adapters.sqs.errors import to_sqs_error
from adapters.sqs.mapping import plain_header_block
from adapters.sqs.messages.batch_entries import BATCH_BYTES_MAX
from adapters.sqs.messages.contiguous_json import (
    needs_no_escapes,
    shown_run,
    system_attributes_json,
)
from adapters.sqs.messages.md5 import md5s_of_bodies
from adapters.sqs.queues.queue_rules import QueueRules
from adapters.sqs.text import has_only_text
from gateway.errors import GatewayError, StorageUnavailable
from gateway.partition import Partition
from gateway.records.message_ids import message_ids
from gateway.records.record_run import RecordRun

if TYPE_CHECKING:
    from adapters.sqs.messages.ports import MessageNode
    from gateway.queues.manager import Queue

_MEMBERS_COUNT: Final = 2  # Id and MessageBody are required


def send_plain_batch(
    call: Call,
    node: "MessageNode",
    queue: "Queue",
    rules: QueueRules,
    entries: Sequence[Params],
    *,
    sender: str,
) -> bool:
    """Send the entries and answer later; return False, without effect, if they are not plain.

    An entry that has more than an id and a body, or that cannot be sent, is not plain.
    """
    if rules.is_fifo or set(map(len, entries)) != {_MEMBERS_COUNT}:
        return False
    found = _values([entry["MessageBody"] for entry in entries], rules.message_bytes_max)
    if found is None:
        return False
    values, is_json = found
    partition = queue.partition_for(None)
    run = RecordRun(None, values, plain_header_block(sender), node.clock.unix_ms())
    on_kept = partial(_on_kept, call, partition, run, entries, sender if is_json else None)
    try:
        node.queues.coalescer.add(partition, run, on_kept)
    except GatewayError:
        return False  # the common way raises it again, for each entry
    return True


def _values(bodies: list[str], message_bytes_max: int) -> tuple[list[bytes], bool] | None:
    """Return the bytes of bodies, and whether JSON takes them without escapes.

    None when one of them, or all of them together, cannot be sent.
    """
    try:
        values = [body.encode() for body in bodies]
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    sizes = list(map(len, values))
    if min(sizes) == 0 or max(sizes) > message_bytes_max or sum(sizes) > BATCH_BYTES_MAX:
        return None
    joined = b"".join(values)
    is_json = needs_no_escapes(joined)
    return (values, is_json) if is_json or has_only_text(joined) else None


def _on_kept(  # noqa: PLR0917 - the parts of a batch's answer
    call: Call,
    partition: Partition,
    run: RecordRun,
    entries: Sequence[Params],
    sender: str | None,
    error: StorageUnavailable | None,
) -> None:
    if error is not None:
        call.fail(to_sqs_error(error))
        return
    values: Any = run.values
    ids = message_ids(partition.topic.uuid, partition.number).row(run.base_offset, len(values))
    digests = md5s_of_bodies(values)
    if sender is not None:  # cached for receivers, which get the same columns
        run.shown = shown_run(
            ids, digests, values, system_attributes_json(sender, run.timestamp_unix_ms)
        )
    if call.is_json:
        call.reply_json(all_sent_body([entry["Id"] for entry in entries], ids, digests))
        return
    results = [
        {
            "Id": entry["Id"],
            "MessageId": message_id.decode(),
            "MD5OfMessageBody": digest.decode(),
        }
        for entry, message_id, digest in zip(entries, ids, digests, strict=True)
    ]
    call.reply({"Successful": results})


def all_sent_body(
    entry_ids: Sequence[str], ids: Sequence[bytes], digests: Sequence[bytes]
) -> bytes:
    """Return the body of an answer to SendMessageBatch without failed entries.

    The ids consist of letters, digits, hyphens and underscores.
    """
    found = b"},".join(
        [
            b'{"Id":"%b","MessageId":"%b","MD5OfMessageBody":"%b"' % (entry_id.encode(), *one)
            for entry_id, one in zip(entry_ids, zip(ids, digests, strict=True), strict=True)
        ]
    )
    return b'{"Successful":[%b}]}' % found
