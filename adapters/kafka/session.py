"""Identity and authentication state of one connection, without any I/O."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from adapters.kafka.config import KafkaListener
from adapters.kafka.node.node import Node
from gateway.auth.ports import ANONYMOUS, Operation, Principal, ResourceType
from gateway.config.base import Address
from gateway.model import DEFAULT_NAMESPACE


class ThrottledRequest(Protocol):
    """Request that is being served, of a client with quotas; see ``quotas.request_meter``."""

    def throttle(self, wait_ms: int) -> None:
        """Throttle the client for so long after the response."""
        ...


class Session:
    """Identity and state of one connection. Handlers read it; SASL handlers change it."""

    __slots__ = (
        "accepts_sasl",
        "advertised",
        "client_id",
        "ends_unix_ms",
        "is_authenticated",
        "is_rejected",
        "meter",
        "namespace",
        "node",
        "peer_host",
        "principal",
        "sasl",
    )

    def __init__(
        self,
        node: Node,
        *,
        peer_host: str,
        advertised: Address,
        listener: KafkaListener | None = None,
        certificate_user: str | None = None,
    ) -> None:
        """``certificate_user``: the user that the client's certificate maps to on the listener."""
        listener = listener or node.config
        named = None if listener.authentication == "sasl" else certificate_user
        self.node = node
        self.peer_host = peer_host
        self.advertised = advertised
        self.client_id = ""
        self.namespace = listener.namespace
        self.principal = Principal(named or ANONYMOUS, "kafka", peer_host)
        self.is_authenticated = named is not None or (
            listener.authentication == "any" and not node.authenticator.required
        )
        self.accepts_sasl = listener.authentication != "certificate"
        self.is_rejected = False  # authentication failed: answer, then close
        self.sasl: Any = None
        self.ends_unix_ms = 0  # when it must have logged in again; 0: never
        self.meter: ThrottledRequest | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the time of the login is over."""
        return 0 < self.ends_unix_ms <= self.node.clock.steady_unix_ms()

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the connection's principal may do ``operation`` to a resource.

        In rules, resources outside of the default namespace are named ``namespace/name``.
        """
        if self.namespace != DEFAULT_NAMESPACE and resource_type != ResourceType.CLUSTER:
            name = f"{self.namespace}/{name}"
        return self.node.authorizer.allows(self.principal, operation, resource_type, name)

    def changes(
        self, action: str, name: str, *, dry: bool = False
    ) -> AbstractContextManager[None]:
        """Write an audit line about the change made inside the context.

        ``dry``: the change is only validated, and no line is written.
        """
        return nullcontext() if dry else self.node.audit.change(self.principal, action, name)
