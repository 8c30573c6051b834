"""ShareFetch: API key 78, versions 1 to 2 (KIP-932).

v2  mode of acquiring (KIP-1206), renewed locks (KIP-1222)

The response has whole batches as they are stored, and the offsets in them that are locked for the
member. Acknowledgements in the request are durable when it is answered.
"""

from typing import Final

from adapters.kafka.codecs.share_fetch_codec import ShareFetchRequest, decode_fetch
from adapters.kafka.fetching.ports import FetchReply
from adapters.kafka.node.large_requests import topic_slices, yield_to_loop
from adapters.kafka.session import Session
from adapters.kafka.shares.new_fetch import new_share_fetch

API_KEY: Final = 78
VERSIONS: Final = range(1, 3)

decode = decode_fetch


def handle(
    request: ShareFetchRequest,
    session: Session,
    version: int,  # noqa: ARG001 - responses are alike
    reply: FetchReply,
) -> None:
    """Acknowledge and acquire messages, or wait for some within the client's limits."""
    fetch = new_share_fetch(request, session, reply)
    if fetch is not None:
        fetch.acknowledgements.take(request.topics)
        fetch.start()


async def handle_large(
    request: ShareFetchRequest,
    session: Session,
    version: int,  # noqa: ARG001 - responses are alike
    reply: FetchReply,
) -> None:
    """Do as ``handle``, in slices."""
    fetch = new_share_fetch(request, session, reply)
    if fetch is None:
        return
    for topics in topic_slices(request.topics):
        fetch.acknowledgements.take(topics)
        await yield_to_loop()
    fetch.start()
