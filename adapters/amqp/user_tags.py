"""Tags and limits of users, as RabbitMQ's tools set them; roles of the gateway give tags too."""

from typing import Any, Final

from gateway.admin.roles import Role, role_of
from gateway.errors import InvalidRequest
from gateway.kernel import Kernel
from gateway.metadata.documents import Documents

USER: Final = "amqp.user"  # kind of documents
ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
MANAGEMENT: Final = "management"
TAGS_MAX: Final = 100
TAG_CHARS_MAX: Final = 255

_OF_ROLE: Final = {
    Role.ADMIN: (ADMINISTRATOR,),
    Role.OPERATOR: (POLICYMAKER, MONITORING),
    Role.VIEWER: (MONITORING,),
    Role.NONE: (),
}


class UserTags:
    """Tags and limits by user. Loop only."""

    def __init__(self, kernel: Kernel, documents: Documents) -> None:
        self._kernel = kernel
        self._documents = documents

    def stored(self, user: str) -> list[str]:
        """Return the tags that were set for a user, in their order.

        ``administrator`` is among them exactly where the user is one.
        """
        tags = [tag for tag in self._document(user).get("tags", []) if tag != ADMINISTRATOR]
        if self._kernel.authenticator.is_super_user(user):
            tags.insert(0, ADMINISTRATOR)
        return tags

    def of(self, user: str, host: str) -> frozenset[str]:
        """Return all tags of a user who calls from an address, those of its role included."""
        role = role_of(user, host, self._kernel.authenticator, self._kernel.authorizer)
        return frozenset((*self.stored(user), *_OF_ROLE[role]))

    def limits(self, user: str) -> dict[str, int]:
        """Return the limits of a user."""
        found: dict[str, int] = self._document(user).get("limits", {})
        return found

    async def put(self, user: str, tags: list[str]) -> None:
        """Set the tags of a user."""
        await self._documents.put(USER, "", user, {**self._document(user), "tags": tags})

    async def set_limits(self, user: str, limits: dict[str, int]) -> None:
        """Set the limits of a user."""
        await self._documents.put(USER, "", user, {**self._document(user), "limits": limits})

    async def forget(self, user: str) -> None:
        """Forget a user."""
        await self._documents.delete(USER, "", user)

    def _document(self, user: str) -> dict[str, Any]:
        found: dict[str, Any] = self._documents.find(USER, "", user) or {}
        return found


def check_user_limits(limits: dict[str, Any]) -> dict[str, int]:
    """Return the limits of a user; a negative one is none. Error: ``InvalidRequest``."""
    for name, value in limits.items():
        if name != "max-connections" or not isinstance(value, int) or isinstance(value, bool):
            raise InvalidRequest(f"limit {name!r:.80} of a user is not served")
    return limits


def parse_tags(found: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Return tags: a list, or text with commas, as earlier versions have it.

    Error: ``InvalidRequest``.

    >>> parse_tags("administrator, monitoring"), parse_tags(["management"])
    (['administrator', 'monitoring'], ['management'])
    """
    tags = found.split(",") if isinstance(found, str) else found
    if not isinstance(tags, list) or len(tags) > TAGS_MAX:
        raise InvalidRequest(f"tags are a list of at most {TAGS_MAX}")
    if not all(isinstance(tag, str) and len(tag) <= TAG_CHARS_MAX for tag in tags):
        raise InvalidRequest(f"a tag is text of at most {TAG_CHARS_MAX} characters")
    return [*dict.fromkeys(tag.strip() for tag in tags if tag.strip())]
