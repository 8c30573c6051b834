"""Pages of queues, of their messages without taking them, and counts of dead letters.

To look at messages changes nothing: no lease, no attempt. Dead letters are counted by reason among
the first ``LETTERS_MAX``; an answer says how many were looked at, of how many.
"""

from collections import Counter
from typing import Any, Final

from starlette.requests import Request

from gateway.admin.paging import Page, whole_number
from gateway.admin.queue_views import letter_view, messages_of, queue_summary
from gateway.errors import InvalidRequest
from gateway.kernel import Kernel
from gateway.model import (
    DLQ_PREFIX,
    Record,
    TopicName,
    check_topic_name,
    is_dead_letter_reference,
)
from gateway.queues.manager import Queue

QUEUE_SORTS: Final = ("name", "ready", "in_flight", "delayed")
LETTERS_MAX: Final = 1_000
MESSAGES_MAX: Final = 200


async def queue_page(kernel: Kernel, queues: list[Queue], page: Page) -> dict[str, Any]:
    """Return a page of queues; only those of the page are looked into."""
    found = page.names(queues, lambda queue: queue.name.name)
    if page.sort == "name":
        rows = page.cut(found)
    else:
        rows = await page.cut_sorted(found, lambda queue: queue.counts()._asdict()[page.sort])
    return {"queues": [await queue_summary(kernel, one) for one in rows], "total": len(found)}


async def message_page(kernel: Kernel, queue: Queue, request: Request) -> dict[str, Any]:
    """Return messages from a partition and an offset on, and where to go on."""
    asked = request.query_params
    count = whole_number(asked, "limit", 50)
    if not 1 <= count <= MESSAGES_MAX:
        raise InvalidRequest(f"limit: 1 to {MESSAGES_MAX}")
    number, offset = whole_number(asked, "partition", 0), whole_number(asked, "offset", 0)
    found, total = await messages_of(kernel, queue, count, number=number, offset=offset)
    now_unix_ms = kernel.clock.unix_ms()
    last = found[-1] if len(found) >= count else None
    return {
        "messages": [letter_view(one, now_unix_ms) for one in found],
        "total": total,
        "next": last and {"partition": last.number, "offset": last.record.offset + 1},
    }


async def reasons_of(kernel: Kernel, queue: Queue) -> dict[str, Any]:
    """Return the number of dead letters by reason and source, most first."""
    letters = await queue.browse(LETTERS_MAX)
    counts: Counter[tuple[str, str]] = Counter()
    for letter in letters:
        counts[_header(letter.record, "reason"), _header(letter.record, "source.topic")] += 1
    return {
        "reasons": [
            {"reason": reason, "source": source, "count": count}
            for (reason, source), count in counts.most_common()
        ],
        "looked_at": len(letters),
        "total": sum(queue.counts()),
        "sources": [one.name.name for one in kernel.queues.sources_of(queue.name)],
    }


async def redrive_preview(kernel: Kernel, queue: Queue, request: Request) -> dict[str, Any]:
    """Return where a redrive would move the first messages, and which would stay."""
    named = request.query_params.get("destination") or None
    namespace = queue.name.namespace
    if named is not None:
        kernel.topics.get(TopicName(namespace, check_topic_name(named)))
    letters = await queue.browse(LETTERS_MAX)
    moves: Counter[str] = Counter()
    stays: Counter[str] = Counter()
    for letter in letters:
        target = named or _header(letter.record, "source.topic")
        topic = kernel.topics.find(TopicName(namespace, target)) if target else None
        if letter.state != "ready":
            stays[f"{letter.state}: only ready messages move"] += 1
        elif is_dead_letter_reference(letter.record.headers):
            stays["it is a reference to a message that could not be moved itself"] += 1
        elif not target:
            stays["it does not say where it came from"] += 1
        elif topic is None or topic.is_internal:
            stays[f"there is no topic {target}"] += 1
        else:
            moves[target] += 1
    return {
        "moves": [{"destination": name, "count": n} for name, n in moves.most_common()],
        "stays": [{"why": why, "count": n} for why, n in stays.most_common()],
        "looked_at": len(letters),
        "total": sum(queue.counts()),
    }


def _header(record: Record, name: str) -> str:
    for found, value in record.headers:
        if found == DLQ_PREFIX + name:
            return (value or b"").decode(errors="replace")
    return ""
