"""Documents: small settings of the kernel and of adapters, read from memory, stored in SQL.

A document is a JSON value with a kind (``policy``, ``amqp.vhost``), a namespace and a name. What
a kind means is known where it is used.
"""

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from gateway.errors import InvalidRequest, Overloaded
from gateway.metadata.change_model import ChangeKind, parts_of
from gateway.metadata.changes import Changes
from gateway.metadata.store import DocumentRow, MetadataStore

DOCUMENTS_MAX: Final = 50_000
VALUE_BYTES_MAX: Final = 65_536
NAME_BYTES_MAX: Final = 512
NAMESPACE_BYTES_MAX: Final = 255


class DocumentKey(NamedTuple):
    """Identity of a document within its kind."""

    namespace: str
    name: str


class Documents:
    """Documents of all kinds. Loop only; changes are made one at a time, and show once durable."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._changes = Changes(metadata.feed)
        self._by_kind: dict[str, dict[DocumentKey, Any]] = {}
        self._count = 0
        self.on_change: list[Callable[[str, DocumentKey], None]] = []
        """Callbacks for a document that was put or deleted, with its kind."""

    async def load(self) -> None:
        """Load all documents, once, before any other call. Error: ``StorageUnavailable``."""
        for row in await self._metadata.documents():
            key = DocumentKey(row.namespace, row.name)
            self._by_kind.setdefault(row.kind, {})[key] = json.loads(row.value)
            self._count += 1
        self._changes.follow(ChangeKind.DOCUMENT, self._reload)

    async def close(self) -> None:
        """Wait for running changes."""
        await self._changes.close()

    def find(self, kind: str, namespace: str, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return the value of a document; None without one."""
        return self._by_kind.get(kind, {}).get(DocumentKey(namespace, name))

    def of_kind(self, kind: str) -> dict[DocumentKey, Any]:
        """Return the documents of a kind; the result is not to be changed."""
        return self._by_kind.get(kind, {})

    async def put(self, kind: str, namespace: str, name: str, value: Any) -> bool:  # noqa: ANN401
        """Store a document; say whether it is new.

        Errors: ``InvalidRequest`` when it is too large, ``Overloaded``, ``StorageUnavailable``.
        """
        text = json.dumps(value, separators=(",", ":"))
        sizes = (
            ("a value", text, VALUE_BYTES_MAX),
            ("a name", name, NAME_BYTES_MAX),
            ("a namespace", namespace, NAMESPACE_BYTES_MAX),
        )
        for what, checked, bytes_max in sizes:
            if len(checked.encode(errors="surrogatepass")) > bytes_max or "\0" in checked:
                raise InvalidRequest(f"{what} has at most {bytes_max} bytes, none of them NUL")
        document = DocumentRow(kind, namespace, name, text)
        return await self._changes.make(self._put, document)

    async def delete(self, kind: str, namespace: str, name: str) -> bool:
        """Remove a document; say whether there was one."""
        return await self._changes.make(self._delete, kind, DocumentKey(namespace, name))

    async def _put(self, document: DocumentRow) -> bool:
        key = DocumentKey(document.namespace, document.name)
        is_new = key not in self._by_kind.get(document.kind, {})
        if is_new and self._count >= DOCUMENTS_MAX:
            raise Overloaded(f"there are {DOCUMENTS_MAX} documents")
        await self._metadata.put_document(document)
        self._show(document.kind, key, json.loads(document.value))
        return is_new

    async def _delete(self, kind: str, key: DocumentKey) -> bool:
        removed = await self._metadata.delete_document(kind, key.namespace, key.name)
        self._forget(kind, key)
        return removed

    async def _reload(self, keys: frozenset[str] | None) -> None:
        """See ``gateway.metadata.feed.Reload``."""
        if keys is None:
            rows = await self._metadata.documents()
            known = [(kind, key) for kind, found in self._by_kind.items() for key in found]
        else:
            places = [parts_of(key) for key in keys]
            known = [(kind, DocumentKey(*key)) for kind, *key in places]
            rows = await self._metadata.documents({key.name for _, key in known})
        stored = {(row.kind, DocumentKey(row.namespace, row.name)): row.value for row in rows}
        for place in known:
            if place not in stored:
                self._forget(*place)
        for (kind, key), text in stored.items():
            value = json.loads(text)
            if value != self.find(kind, *key):
                self._show(kind, key, value)

    def _show(self, kind: str, key: DocumentKey, value: Any) -> None:  # noqa: ANN401 - JSON
        found = self._by_kind.setdefault(kind, {})
        self._count += key not in found
        found[key] = value
        self._note(kind, key)

    def _forget(self, kind: str, key: DocumentKey) -> None:
        if self._by_kind.get(kind, {}).pop(key, None) is not None:
            self._count -= 1
            self._note(kind, key)

    def _note(self, kind: str, key: DocumentKey) -> None:
        for hook in self.on_change:
            hook(kind, key)
