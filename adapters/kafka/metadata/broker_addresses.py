"""Addresses of the brokers, as clients of a listener see them."""

from collections.abc import Sequence

from adapters.kafka.codecs.metadata_codec import BrokerAddress
from adapters.kafka.session import Session


def other_brokers(session: Session) -> Sequence[BrokerAddress]:
    """Return ``brokers``, for answers that name other leaders; nothing if this node owns all."""
    return () if session.node.placement.owns_all else brokers(session)


def brokers(session: Session) -> list[BrokerAddress]:
    """Return the nodes, each with its address for clients of the session's listener.

    This node's address is the one that the listener advertises. Other nodes of a cluster are
    reached at their own host, on the same port.
    """
    placement, own = session.node.placement, session.advertised
    return [
        BrokerAddress(
            node.node_id,
            own.host if node.node_id == placement.node_id else node.host,
            own.port,
            node.rack,
        )
        for node in placement.nodes()
    ]
