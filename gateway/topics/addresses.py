"""Addresses: a protocol's own names of topics and groups.

``%RETRY%g``, ``a/b``, AMQP names of 255 bytes and aliases. In memory here, durable in SQL
first.
"""

from gateway.metadata.change_model import ChangeKind
from gateway.metadata.changes import Changes
from gateway.metadata.store import MetadataStore, ProtocolAddress
from gateway.topics.index import Topic
from gateway.topics.manager import TopicManager


class AddressBook:
    """Finds topics by their native names. Loop only."""

    def __init__(self, metadata: MetadataStore, topics: TopicManager) -> None:
        self._metadata = metadata
        self._changes = Changes(metadata.feed)
        self._addresses: dict[tuple[str, str, str], ProtocolAddress] = {}
        topics.on_deleted.append(self._forget_topic)

    async def load(self) -> None:
        """Load all addresses from the store; once, before any other call."""
        await self._reload(None)
        self._changes.follow(ChangeKind.ADDRESS, self._reload)

    async def _reload(self, _keys: frozenset[str] | None) -> None:
        self._addresses = {_key(one): one for one in await self._metadata.addresses()}

    def find(self, namespace: str, protocol: str, native_name: str) -> ProtocolAddress | None:
        """Return the topic and group of a native name."""
        return self._addresses.get((namespace, protocol, native_name))

    async def put(self, address: ProtocolAddress) -> None:
        """Add or replace an address. Errors: ``TopicNotFound``, ``StorageUnavailable``."""
        await self._changes.make(self._put, address)

    async def remove(self, namespace: str, protocol: str, native_name: str) -> None:
        """Remove an address, if it is there."""
        await self._changes.make(self._remove, namespace, protocol, native_name)

    async def _put(self, address: ProtocolAddress) -> None:
        await self._metadata.put_address(address)
        self._addresses[_key(address)] = address

    async def _remove(self, namespace: str, protocol: str, native_name: str) -> None:
        await self._metadata.delete_address(namespace, protocol, native_name)
        self._addresses.pop((namespace, protocol, native_name), None)

    def _forget_topic(self, topic: Topic) -> None:
        """Forget the addresses of a deleted topic."""
        self._addresses = {
            key: address
            for key, address in self._addresses.items()
            if address.topic_uuid != topic.uuid
        }


def _key(address: ProtocolAddress) -> tuple[str, str, str]:
    return (address.namespace, address.protocol, address.native_name)
