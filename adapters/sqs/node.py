"""State shared by all handlers of SQS: look-up of queues, their names, authorization."""

import secrets
from typing import Final

from adapters.sqs.auth import policy
from adapters.sqs.auth.policy_conditions import RequestContext
from adapters.sqs.call import Call
from adapters.sqs.config import SqsConfig
from adapters.sqs.errors import ACCESS_DENIED, SqsError, no_queue
from adapters.sqs.messages.state import MessageState
from adapters.sqs.queues.recent_names import RecentNames
from adapters.sqs.queues.urls import (
    QueueAddress,
    format_queue_arn,
    format_queue_url,
    is_of_host,
    is_region,
    parse_queue_arn,
    parse_queue_url,
)
from adapters.sqs.text import is_account
from gateway.auth.ports import Operation, ResourceType, Verdict
from gateway.kernel import Kernel
from gateway.metadata.changes import Changes
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.queues.manager import Queue

SECRET_BYTES: Final = 32
QUEUES_BY_URL_MAX: Final = 4_096  # cached look-ups of queues
_SECRET_KEY: Final = "sqs_receipt_secret"  # noqa: S105 - the name of a metadata entry
_NAMESPACE_PREFIX: Final = "sqs-"
POLICY: Final = "sqs.Policy"


class SqsNode:
    """The node's part of the adapter, made by ``open_node`` at its start. Loop only.

    ``secret`` signs receipt handles; it stays the same for a data directory. ``deleted`` and
    ``purged`` are the names of queues that were recently deleted or purged. ``changes`` makes
    changes of queues one at a time, because each reads the state that it then writes.
    """

    def __init__(self, config: SqsConfig, kernel: Kernel, secret: bytes) -> None:
        self.config = config
        self.kernel = kernel
        self.clock = kernel.clock
        self.queues = kernel.queues
        self.delays = kernel.delays
        self.access_keys = kernel.access_keys
        self.secret = secret
        self.regions = frozenset({config.region, *config.regions})
        self.deleted = RecentNames(kernel.clock, config.deleted_name_s * 1_000)
        self.purged = RecentNames(kernel.clock, config.purge_s * 1_000)
        self.changes = Changes()
        # By URL, and the caller's account and region.
        self._queues_by_url: dict[tuple[str, str, str], Queue] = {}
        kernel.topics.on_deleted.append(lambda _: self._queues_by_url.clear())
        self._is_tls = config.tls_cert is not None
        self.messages = MessageState(kernel, config, secret)

    # --- look-up of queues

    def queue_of(self, call: Call, *, url: str) -> Queue:
        """Return the caller's queue for a URL of any style or a bare name.

        Errors: ``SqsError`` (``QUEUE_DOES_NOT_EXIST``, ``INVALID_ADDRESS``); ``NotLeader`` when
        another node owns a partition of the queue.
        """
        identity = call.identity
        key = (url, identity.account, identity.region)
        queue = self._queues_by_url.get(key)
        if queue is None or queue.is_gone:
            queue = self.queues.find(self.name_of(call, url=url))
            if queue is None:
                raise no_queue()
            if len(self._queues_by_url) >= QUEUES_BY_URL_MAX:
                self._queues_by_url.clear()
            self._queues_by_url[key] = queue
        if queue.is_away:
            queue.check_here()
        return queue

    def name_of(self, call: Call, *, url: str) -> TopicName:
        """Return the gateway's topic name for a queue URL.

        Errors: ``INVALID_ADDRESS``; ``QUEUE_DOES_NOT_EXIST`` for the host of a region that is not
        served, or for a URL without a queue at a foreign host.
        """
        try:
            account, region, name = parse_queue_url(url)
        except SqsError:
            if is_of_host(url, call.base_url):
                raise
            raise no_queue() from None
        if is_region(region) and region not in self.regions:
            raise no_queue()
        identity = call.identity
        return TopicName(
            self.namespace(
                account or identity.account,
                region if region in self.regions else identity.region,
            ),
            name,
        )

    def queue_by_arn(self, arn: str) -> Queue | None:
        """Return the queue of an ARN; None for another ARN, or when the queue does not exist."""
        address = parse_queue_arn(arn)
        if address is None:
            return None
        return self.queues.find(
            TopicName(self.namespace(address.account, address.region), address.name)
        )

    def namespace(self, account: str, region: str) -> str:
        """Return the namespace of an account's queues in a region.

        The default account and region have the gateway's default namespace.
        """
        if account == self.config.account and region == self.config.region:
            return DEFAULT_NAMESPACE
        return f"{_NAMESPACE_PREFIX}{account}-{region}"

    # --- names

    def address_of(self, name: TopicName) -> QueueAddress:
        """Return account, region and name of a queue: the inverse of ``namespace``."""
        if name.namespace == DEFAULT_NAMESPACE:
            return QueueAddress(self.config.account, self.config.region, name.name)
        account, _, region = name.namespace.removeprefix(_NAMESPACE_PREFIX).partition("-")
        assert is_account(account)
        return QueueAddress(account, region, name.name)

    def url_of(self, call: Call, queue: Queue) -> str:
        """Return the queue's URL for this caller."""
        return self.url_of_name(call, queue.topic.name)

    def url_of_name(self, call: Call, name: TopicName) -> str:
        """Return the URL of a queue by its name."""
        return format_queue_url(
            call.base_url, self.address_of(name), default_region=self.config.region
        )

    def arn_of(self, queue: Queue) -> str:
        """Return the queue's ARN."""
        return self.arn_of_name(queue.topic.name)

    def arn_of_name(self, name: TopicName) -> str:
        """Return the ARN of a queue by its name."""
        return format_queue_arn(self.address_of(name))

    # --- authorization

    def authorize(
        self,
        call: Call,
        target: Queue | TopicName,
        operation: Operation,
        *,
        action: str | None = None,
    ) -> None:
        """Refuse a call that neither the rules nor the queue's policy allow.

        A ``TopicName`` stands for a queue that does not exist yet, or for a whole namespace. A Deny
        of either wins, then an Allow of either; then the gateway's default, for queues of the
        caller's own account. ``action`` is the action for the policy, by default the call's. Error:
        ``SqsError`` (``ACCESS_DENIED``).
        """
        name = target if isinstance(target, TopicName) else target.topic.name
        is_default = name.namespace == DEFAULT_NAMESPACE
        owner = self.config.account if is_default else self.address_of(name).account
        is_own = owner == call.identity.account
        resource = name.name if is_default else f"{name.namespace}/{name.name}"
        document = "" if isinstance(target, TopicName) else target.attributes.get(POLICY, "")
        if is_own and not document:
            principal, allows = call.identity.principal, self.kernel.authorizer.allows
            is_allowed = allows(principal, operation, ResourceType.TOPIC, resource)
        else:
            is_allowed = self._is_allowed(
                call,
                operation,
                resource,
                document,
                self.arn_of_name(name),
                action or call.action,
                is_own=is_own,
            )
        if not is_allowed:
            raise self._denied(call, name)

    def allows(self, call: Call, queue: Queue, operation: Operation) -> bool:
        """Return whether ``authorize`` would pass; for lists, which leave out other queues."""
        try:
            self.authorize(call, queue, operation)
        except SqsError as error:
            if error.code is ACCESS_DENIED:
                return False
            raise
        return True

    def authorize_again(self, call: Call, queue: Queue, operation: Operation) -> None:
        """Refuse a call that has waited and is not allowed any more.

        Beside the checks of ``authorize``, the caller's key must still exist. Error: ``SqsError``
        (``ACCESS_DENIED``).
        """
        key_id = call.identity.access_key_id
        if key_id and self.access_keys.find(key_id) is None:
            raise self._denied(call, queue.topic.name)
        self.authorize(call, queue, operation)

    def _is_allowed(  # noqa: PLR0913, PLR0917 - called in one place
        self,
        call: Call,
        operation: Operation,
        resource: str,
        document: str,
        arn: str,
        action: str,
        *,
        is_own: bool,
    ) -> bool:
        """Evaluate rules and policy; a rule for any topic does not open another account's queue."""
        kernel, principal = self.kernel, call.identity.principal
        if principal.is_anonymous and kernel.authenticator.required:
            return False
        if kernel.authorizer.is_super_user(principal):
            return True
        rules = kernel.authorizer.verdict(
            principal, operation, ResourceType.TOPIC, resource, by_name=not is_own
        )
        said = None
        if document:
            context = self.request_context(call)
            said = policy.decide(document, action=action, context=context, arn=arn)
        if rules is Verdict.DENIED or said is False:
            return False
        if rules is Verdict.ALLOWED or said:
            return True
        is_silent = rules is Verdict.SILENT and is_own
        return is_silent and kernel.authorizer.allows_by_default(principal)

    def request_context(self, call: Call) -> RequestContext:
        """Return the facts that a policy's conditions test."""
        return RequestContext(call.identity, self.clock.wall_unix_ms(), is_tls=self._is_tls)

    def _denied(self, call: Call, name: TopicName) -> SqsError:
        identity = call.identity
        user = f"arn:aws:iam::{identity.account}:user/{identity.principal.name}"
        return SqsError(
            ACCESS_DENIED,
            f"User: {user} is not authorized to perform: sqs:{call.action.lower()} "
            f"on resource: {self.arn_of_name(name)}",
        )


async def open_node(config: SqsConfig, kernel: Kernel) -> SqsNode:
    """Make the node. The secret of receipt handles is chosen once per metadata store."""
    secret = await kernel.metadata.once(_SECRET_KEY, secrets.token_hex(SECRET_BYTES))
    return SqsNode(config, kernel, bytes.fromhex(secret))
