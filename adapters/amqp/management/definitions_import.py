"""Import of definitions: users, vhosts, permissions, parameters, policies, then topology.

What is there already is left as it is, but for users, permissions and policies, which take the
file's values. Names that every vhost has (``amq.*``, the default exchange) are passed over. The
first entry that is refused ends the import, and the error says which it was; what came before it
stays, and importing the file again goes on from there.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from adapters.amqp.management.body_fields import bool_of, short_text_of, table_of, text_of
from adapters.amqp.management.errors import to_api_fault
from adapters.amqp.management.permissions import check_expression
from adapters.amqp.management.policies import to_policy
from adapters.amqp.names import to_namespace, to_topic_name
from adapters.amqp.node import AmqpNode
from adapters.amqp.parameters import (
    GLOBAL_PARAMETER,
    OPERATOR_POLICY,
    VHOST_LIMITS,
    check_limits,
    component_not_found,
)
from adapters.amqp.queue_arguments import (
    QUEUE_TYPE,
    STREAM,
    check_arguments,
    check_served,
    queue_type,
)
from adapters.amqp.queues import Declaration, check_replicated
from adapters.amqp.stream_arguments import check_sizes
from adapters.amqp.topic_permissions import TopicPermission
from adapters.amqp.user_tags import ADMINISTRATOR, check_user_limits, parse_tags
from adapters.amqp.users import Password
from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.publishing import to_values
from adapters.amqp.vhost_permissions import VhostPermission
from adapters.amqp.vhosts import metadata_of
from features.routing.model import Binding, Destination, format_arguments
from gateway.errors import GatewayError, InvalidRequest, as_value
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import RESERVED
from gateway.policies.model import PolicyKind
from gateway.queues.create_queue import make_queue

Json = Mapping[str, Any]
ENTRIES_PER_TURN: Final = 50


class Importer:
    """Import of one file. ``vhost``: that of all entries; None where each names its own."""

    def __init__(self, node: AmqpNode, vhost: str | None = None) -> None:
        self._node = node
        self._vhost = vhost

    async def run(self, found: Any) -> None:  # noqa: ANN401 - JSON
        """Import definitions. Errors: ``InvalidRequest``, ``StorageUnavailable``."""
        if not isinstance(found, Mapping):
            raise InvalidRequest("definitions are not an object")
        for section, put in self._sections():
            entries = found.get(section) or []
            if not isinstance(entries, list):
                raise InvalidRequest(f"{section} is not a list")
            if section == "users":
                entries = sorted(entries, key=_is_no_administrator)
            for number, entry in enumerate(entries):
                with _named(section, entry):
                    if not isinstance(entry, Mapping):
                        raise InvalidRequest("an entry is not an object")
                    await put(entry)
                if number % ENTRIES_PER_TURN == 0:
                    await asyncio.sleep(0)
        for vhost in {self._vhost} if self._vhost is not None else self._node.vhosts.names():
            await self._node.policies.apply(vhost)

    def _sections(self) -> list[tuple[str, Callable[[Json], Coroutine[Any, Any, None]]]]:
        whole = (
            [
                ("users", self._put_user),
                ("vhosts", self._put_vhost),
                ("permissions", self._put_permission),
                ("topic_permissions", self._put_topic_permission),
                ("global_parameters", self._put_global),
            ]
            if self._vhost is None
            else []
        )
        return [
            *whole,
            ("exchanges", self._put_exchange),
            ("parameters", self._put_parameter),
            ("policies", self._put_policy),
            ("queues", self._put_queue),
            ("bindings", self._put_binding),
        ]

    def _vhost_of(self, entry: Json) -> str:
        vhost = self._vhost if self._vhost is not None else text_of(entry, "vhost")
        if vhost not in self._node.vhosts:
            raise InvalidRequest(f"vhost {vhost!r} does not exist")
        return vhost

    # --- users and vhosts

    async def _put_user(self, entry: Json) -> None:
        algorithm = entry.get("hashing_algorithm")
        password = Password(
            text_of(entry, "password_hash", "")
            if "password" not in entry
            else text_of(entry, "password"),
            is_hash="password" not in entry,
            algorithm=algorithm if isinstance(algorithm, str) else "",
        )
        name = text_of(entry, "name")
        await self._node.users.put(name, password, parse_tags(entry.get("tags", [])))
        limits = entry.get("limits")
        if isinstance(limits, dict) and limits:
            await self._node.tags.set_limits(name, check_user_limits(limits))

    async def _put_vhost(self, entry: Json) -> None:
        name = short_text_of(entry, "name")
        if name not in self._node.vhosts:
            await self._node.vhosts.put(name, metadata_of(dict(entry)))

    async def _put_permission(self, entry: Json) -> None:
        words = (
            check_expression(text_of(entry, one)) for one in ("configure", "write", "read")
        )
        row = VhostPermission(text_of(entry, "user"), self._vhost_of(entry), *words)
        await self._node.permissions.put(row)

    async def _put_topic_permission(self, entry: Json) -> None:
        write, read = (check_expression(text_of(entry, one)) for one in ("write", "read"))
        user, vhost = text_of(entry, "user"), self._vhost_of(entry)
        row = TopicPermission(user, vhost, text_of(entry, "exchange"), write, read)
        await self._node.topic_permissions.put(row)

    # --- parameters and policies

    async def _put_global(self, entry: Json) -> None:
        value = {"value": entry.get("value")}
        await self._node.documents.put(GLOBAL_PARAMETER, "", text_of(entry, "name"), value)

    async def _put_parameter(self, entry: Json) -> None:
        component, vhost = text_of(entry, "component"), self._vhost_of(entry)
        value = entry.get("value")
        if component == VHOST_LIMITS:
            await self._node.vhosts.set_limits(vhost, check_limits(value))
        elif component == OPERATOR_POLICY and isinstance(value, dict):
            name = text_of(entry, "name")
            policy = to_policy(PolicyKind.OPERATOR, vhost, name, value)
            await self._node.policies.policies.put(PolicyKind.OPERATOR, policy)
        else:
            raise component_not_found(component)

    async def _put_policy(self, entry: Json) -> None:
        vhost, name = self._vhost_of(entry), text_of(entry, "name")
        policy = to_policy(PolicyKind.POLICY, vhost, name, dict(entry))
        await self._node.policies.policies.put(PolicyKind.POLICY, policy)

    # --- topology

    async def _put_exchange(self, entry: Json) -> None:
        vhost, name = self._vhost_of(entry), short_text_of(entry, "name")
        exchanges = self._node.kernel.exchanges
        known = ExchangeName(to_namespace(vhost), name)
        if not name or name.startswith(RESERVED) or exchanges.find(known) is not None:
            return
        await exchanges.declare(
            known,
            short_text_of(entry, "type"),
            to_values(table_of(entry, "arguments")),
            auto_delete=bool_of(entry, "auto_delete"),
            is_internal=bool_of(entry, "internal"),
            is_durable=bool_of(entry, "durable"),
        )

    async def _put_queue(self, entry: Json) -> None:
        await self._node.changes.make(self._declare, entry)

    async def _declare(self, entry: Json) -> None:
        node = self._node
        vhost, name = self._vhost_of(entry), short_text_of(entry, "name")
        namespace = to_namespace(vhost)
        topic_name = to_topic_name(namespace, name)
        if name.startswith(RESERVED) or node.kernel.queues.find(topic_name) is not None:
            return
        arguments = table_of(entry, "arguments")
        kind = entry.get("type")
        if isinstance(kind, str) and arguments.find(QUEUE_TYPE) is None and kind != "classic":
            arguments = Table([*arguments, (QUEUE_TYPE, Field("S", kind))])
        resource = f"queue '{name}' in vhost '{vhost}'"
        check_arguments(arguments, resource)
        check_served(arguments, resource)
        durable = bool_of(entry, "durable")
        declared = Declaration(durable, False, bool_of(entry, "auto_delete"), arguments)  # noqa: FBT003
        check_replicated(declared, resource)
        if queue_type(arguments) == STREAM:
            check_sizes(arguments)
            if node.streams.find(namespace, name) is None:
                await node.streams.make(topic_name, name, declared)
            return
        settings = node.policies.settings_for(namespace, name, arguments)
        attributes = declared.to_attributes(name, node.node_id)
        kernel = node.kernel
        if durable or kernel.topics.find(topic_name) is not None:
            await make_queue(
                kernel.queues,
                kernel.topics,
                topic_name,
                settings,
                partitions=1,
                attributes=attributes,
            )
        else:
            node.transient.create(topic_name, settings, attributes=attributes)

    async def _put_binding(self, entry: Json) -> None:
        vhost, source = self._vhost_of(entry), short_text_of(entry, "source")
        if not source:  # every queue has that binding
            return
        namespace = to_namespace(vhost)
        name = short_text_of(entry, "destination")
        is_exchange = text_of(entry, "destination_type", "queue") == "exchange"
        destination = (
            Destination(name, is_exchange=True)
            if is_exchange
            else Destination(to_topic_name(namespace, name).name)
        )
        arguments = format_arguments(to_values(table_of(entry, "arguments")))
        routing_key = short_text_of(entry, "routing_key", "")
        binding = Binding(source, destination, routing_key, arguments)
        await self._node.kernel.exchanges.bind(namespace, binding)


def _is_no_administrator(entry: object) -> bool:
    """Order administrators before others: the first user has to be one."""
    tags = entry.get("tags") if isinstance(entry, Mapping) else None
    return not isinstance(tags, str | list) or ADMINISTRATOR not in tags


@contextmanager
def _named(section: str, entry: object) -> Iterator[None]:
    """Name the entry in an error."""
    try:
        yield
    except GatewayError as error:
        if error.retriable:
            raise
        keys = ("vhost", "name", "user", "source", "destination")
        words = entry if isinstance(entry, Mapping) else {}
        name = " ".join(f"{key} {words[key]!r:.120}" for key in keys if key in words)
        text = to_api_fault(as_value(error)).reason
        raise InvalidRequest(f"{section}: {name}: {text}") from error
