"""Where clients are told to connect to."""

from adapters.kafka.codecs.metadata_codec import BrokerAddress
from adapters.kafka.session import Session


def brokers(session: Session) -> list[BrokerAddress]:
    """Return the nodes, each with the address for clients that came in where this one did.

    A node's own address is that of the listener; what other nodes of a cluster advertise they
    say in their node's host, on the same port.
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
