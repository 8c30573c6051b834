"""The managers of one of the nodes that share a metadata store."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from gateway.auth.access_keys import AccessKeys
from gateway.auth.login_policy import LoginPolicy
from gateway.auth.rules import RuleBook
from gateway.auth.users import StoredUsers
from gateway.clock import ManualClock
from gateway.config.exchanges import ExchangeConfig
from gateway.config.settings import TopicDefaults
from gateway.exchanges.manager import Exchanges
from gateway.metadata.documents import Documents
from gateway.metadata.sql import SqlMetadata
from gateway.quotas.manager import Quotas
from gateway.topics.addresses import AddressBook
from gateway.topics.manager import TopicManager
from tests.support.live_kernel import CHEAP


class FollowingNode:
    """Loaded managers over a store of their own connection."""

    metadata: SqlMetadata
    topics: TopicManager
    addresses: AddressBook
    exchanges: Exchanges
    users: StoredUsers
    rules: RuleBook
    keys: AccessKeys
    quotas: Quotas
    documents: Documents

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    @classmethod
    async def open(cls, url: str, folder: Path, **topic_defaults: Any) -> Self:
        """Return a loaded node."""
        node = cls()
        metadata = node.metadata = SqlMetadata(url, data_dir=folder)
        await metadata.open()
        node._stack.push_async_callback(metadata.close)
        defaults = TopicDefaults.model_validate(topic_defaults)
        node.topics = TopicManager(metadata, defaults=defaults, clock=ManualClock())
        node.addresses = AddressBook(metadata, node.topics)
        node.users = StoredUsers(metadata, LoginPolicy(metadata))
        node.users.iterations = CHEAP
        node.rules = RuleBook(metadata, node.users)
        node.keys = AccessKeys(metadata)
        node.quotas = Quotas(metadata, ManualClock())
        node.documents = Documents(metadata)
        for one in (
            node.topics,
            node.addresses,
            node.users,
            node.rules,
            node.keys,
            node.quotas,
            node.documents,
        ):
            await one.load()
        node.exchanges = await Exchanges.open(
            metadata, node.topics, ManualClock(), ExchangeConfig()
        )
        for closed in (
            node.topics,
            node.users,
            node.rules,
            node.keys,
            node.quotas,
            node.documents,
            node.exchanges,
        ):
            node._stack.push_async_callback(closed.close)
        return node

    async def close(self) -> None:
        """Wait for running changes, and close the store."""
        await self._stack.aclose()
