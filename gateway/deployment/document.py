"""The document: tables as those of the config file, and the names of what is to be deleted.

Keys that an entry does not set are left as they are on a node that has the thing already.
"""

from typing import Any, Final

from pydantic import Field, JsonValue

from gateway.auth.rule_view import RuleText
from gateway.config.base import FrozenConfig
from gateway.config.exchanges import DeclaredBinding, DeclaredExchange
from gateway.config.queues import DeclaredQueue
from gateway.config.quotas import DeclaredQuota
from gateway.config.settings import Settings, TopicConfig
from gateway.model import DEFAULT_GROUP
from gateway.queues.model import QueueSettings

ENTRIES_MAX: Final = 100_000


class QueueEntry(DeclaredQueue):
    """A queue of ``[[queues]]``, with what only an export knows."""

    group: str = Field(default=DEFAULT_GROUP, min_length=1, max_length=255)
    owns_topic: bool = False
    attributes: dict[str, str] = Field(default_factory=dict)
    tags: dict[str, str] = Field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Return the settings that this entry sets."""
        return {
            name: getattr(self, name)
            for name in QueueSettings.model_fields
            if name in self.model_fields_set
        }


class ExchangeEntry(DeclaredExchange):
    """An exchange of ``[[exchanges]]``; ``arguments`` may hold whatever JSON may."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict)  # type: ignore[assignment] # wider
    auto_delete: bool = False
    is_internal: bool = False


class BindingEntry(DeclaredBinding):
    """A binding of ``[[bindings]]``."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict)  # type: ignore[assignment] # wider


class KeyEntry(FrozenConfig):
    """An access key; without a secret it is only known to be there."""

    key_id: str
    account: str = ""
    secret: str = Field(default="", repr=False)


class UserEntry(FrozenConfig):
    """A user of the metadata store; without ``scram`` it is only known to be there."""

    name: str
    administrator: bool = False
    scram: tuple[str, ...] = Field(default=(), repr=False)
    keys: tuple[KeyEntry, ...] = ()


class AuthEntry(FrozenConfig):
    """The table ``[auth]`` of a document: its stored rules."""

    rules: tuple[RuleText, ...] = ()


class Deletions(FrozenConfig):
    """Names of what is to be deleted; what is not there is no error."""

    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class Document(FrozenConfig):
    """All of it, for one namespace; users and rules have none."""

    topics: tuple[TopicConfig, ...] = Field(default=(), max_length=ENTRIES_MAX)
    queues: tuple[QueueEntry, ...] = Field(default=(), max_length=ENTRIES_MAX)
    exchanges: tuple[ExchangeEntry, ...] = Field(default=(), max_length=ENTRIES_MAX)
    bindings: tuple[BindingEntry, ...] = Field(default=(), max_length=ENTRIES_MAX)
    users: tuple[UserEntry, ...] = Field(default=(), max_length=ENTRIES_MAX)
    auth: AuthEntry = AuthEntry()
    quotas: tuple[DeclaredQuota, ...] = Field(default=(), max_length=ENTRIES_MAX)
    delete: Deletions = Deletions()


def document_of(settings: Settings, *, enforced_only: bool = False) -> Document:
    """Return what a config file declares; with ``enforced_only``, what a start enforces of it.

    Users and rules are not in it: those of a config file hold as they are, beside the stored ones.
    """
    mode = settings.node.declared

    def counts(one: TopicConfig | DeclaredQueue | DeclaredExchange) -> bool:
        return not enforced_only or (one.declared or mode) == "enforce"

    return Document(
        topics=tuple(one for one in settings.topics if counts(one)),
        queues=tuple(
            QueueEntry.model_validate(one.model_dump(exclude_unset=True))
            for one in settings.queues
            if counts(one)
        ),
        exchanges=tuple(
            ExchangeEntry.model_validate(one.model_dump(exclude_unset=True))
            for one in settings.exchanges
            if counts(one)
        ),
        bindings=tuple(
            BindingEntry.model_validate(one.model_dump(exclude_unset=True))
            for one in settings.bindings
        ),
    )
