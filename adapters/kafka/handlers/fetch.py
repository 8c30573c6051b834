"""Fetch: API key 1, versions 4 to 18.

v4   isolation level (KIP-98): read_committed ends at the last stable offset, and the response
     lists the aborted transactions, whose batches the client skips
v5   log_start_offset (KIP-107)
v7   incremental fetch sessions (KIP-227), see ``fetching.new_fetch``
v9   current_leader_epoch (KIP-320)
v10  zstd (KIP-110)
v11  rack id (KIP-392); there is one replica, no preferred one
v12  flexible encoding, last_fetched_epoch (KIP-595); the current leader with an error
v13  topic ids (KIP-516)
v15  ReplicaState instead of replica_id (KIP-903); only consumers fetch here
v16  node_endpoints: the addresses of those leaders (KIP-951)
v17  replica directory id (KIP-853), v18 high watermark of the follower; both ignored

The response has whole batches, the first even if it begins before the requested offset or is
above the byte limits (KIP-74). In topics with ``expiry.enable`` expired records are left out.
``min_bytes`` and ``max_wait_ms`` are served by one waiter per fetch, without polling. As in Apache
Kafka, an unknown or forbidden topic does not end the wait for the others, while a read error does.
"""

from typing import Final

from adapters.kafka.codecs.fetch_codec import FetchRequest, decode_fetch_request
from adapters.kafka.fetching.new_fetch import new_fetch
from adapters.kafka.fetching.ports import FetchReply
from adapters.kafka.node.large_requests import topic_slices, yield_to_loop
from adapters.kafka.session import Session

API_KEY: Final = 1
VERSIONS: Final = range(4, 19)

decode = decode_fetch_request


def handle(request: FetchRequest, session: Session, version: int, reply: FetchReply) -> None:
    """Respond with the available batches, or wait for more within the client's limits."""
    fetch = new_fetch(request, session, version, reply)
    if fetch is not None:
        fetch.resolve(request.topics)
        fetch.start()


async def handle_large(
    request: FetchRequest, session: Session, version: int, reply: FetchReply
) -> None:
    """Do as ``handle``, in slices."""
    fetch = new_fetch(request, session, version, reply)
    if fetch is None:
        return
    for topics in topic_slices(request.topics):
        fetch.resolve(topics)
        await yield_to_loop()
    await fetch.join(request.topics)
    fetch.start()
