"""Vhosts: those of the config file, and those made by commands, with what is said about them."""

from typing import Any, Final

from adapters.amqp.config import VHOST_BYTES_MAX, AmqpConfig
from adapters.amqp.user_tags import parse_tags
from gateway.errors import InvalidRequest, PolicyViolation
from gateway.metadata.documents import Documents
from gateway.model import DEFAULT_NAMESPACE

VHOST: Final = "amqp.vhost"  # kinds of documents
VHOST_LIMITS: Final = "amqp.vhost_limits"
_METADATA: Final = ("description", "tags", "default_queue_type", "tracing")
NO_METADATA: Final[dict[str, Any]] = {"description": "", "tags": []}


def metadata_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return what a body says about a vhost; tags are a list, or text with commas.

    Error: ``InvalidRequest``.
    """
    inner = body.get("metadata")
    found = {**(inner if isinstance(inner, dict) else {})}
    found.update({name: body[name] for name in _METADATA if body.get(name) is not None})
    metadata = {**NO_METADATA, **found}
    metadata["tags"] = parse_tags(metadata["tags"])
    if not isinstance(metadata["description"], str):
        raise InvalidRequest("description is not text")
    return metadata


def _check_new(name: str) -> None:
    """Check the name of a new vhost. Error: ``InvalidRequest``."""
    if not 1 <= len(name.encode()) <= VHOST_BYTES_MAX:
        raise InvalidRequest(f"a vhost's name has 1 to {VHOST_BYTES_MAX} bytes")
    if name == DEFAULT_NAMESPACE:  # its queues would be those of the vhost /
        raise InvalidRequest(
            f"a vhost cannot be called {DEFAULT_NAMESPACE!r}: that is the vhost /"
        )


class Vhosts:
    """Vhosts of the node. Loop only."""

    def __init__(self, config: AmqpConfig, documents: Documents) -> None:
        self._declared = config.vhosts
        self._documents = documents

    def names(self) -> list[str]:
        """Return the names of all vhosts, sorted."""
        stored = (key.name for key in self._documents.of_kind(VHOST))
        return sorted({*self._declared, *stored})

    def __contains__(self, name: str) -> bool:
        return name in self._declared or self._documents.find(VHOST, "", name) is not None

    def metadata(self, name: str) -> dict[str, Any]:
        """Return description, tags and other facts of a vhost."""
        found: dict[str, Any] = self._documents.find(VHOST, "", name) or NO_METADATA
        return found

    def limits(self, name: str) -> dict[str, int]:
        """Return the limits of a vhost: ``max-connections``, ``max-queues``; -1 for none."""
        found: dict[str, int] = self._documents.find(VHOST_LIMITS, "", name) or {}
        return found

    async def put(self, name: str, metadata: dict[str, Any]) -> bool:
        """Make a vhost, or change what is said about it; say whether it is new.

        Errors: ``InvalidRequest`` for a name that no new vhost may have; ``StorageUnavailable``.
        """
        is_new = name not in self
        if is_new:
            _check_new(name)
        await self._documents.put(VHOST, "", name, metadata)
        return is_new

    async def set_limits(self, name: str, limits: dict[str, int]) -> None:
        """Set the limits of a vhost; an empty dict removes all."""
        if limits:
            await self._documents.put(VHOST_LIMITS, "", name, limits)
        else:
            await self._documents.delete(VHOST_LIMITS, "", name)

    async def delete(self, name: str) -> None:
        """Forget a vhost. Error: ``PolicyViolation`` for one of the config file."""
        if name in self._declared:
            raise PolicyViolation(f"vhost {name!r} is set in the config file")
        await self._documents.delete(VHOST_LIMITS, "", name)
        await self._documents.delete(VHOST, "", name)
