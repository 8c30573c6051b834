"""Configs of groups: those of share groups (KIP-932)."""

from collections.abc import Mapping
from typing import Final

from adapters.kafka.groups.coordinator import check_group, group_name
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import InvalidGroupId
from gateway.shares.group_configs import SPECS, check_changes
from gateway.topics.configs import ConfigEntry, ConfigSource, ConfigSynonym

GROUP_ID_CHARS_MAX: Final = 32_767


def check_group_resource(session: Session, name: str, operation: Operation) -> None:
    """Check the name of a group, and that the session may do ``operation`` on it.

    Errors: ``InvalidGroupId``, ``Unauthorized``.
    """
    check_group(session, operation, name)
    if not 0 < len(name) <= GROUP_ID_CHARS_MAX:
        raise InvalidGroupId("a group's name has 1 to 32,767 characters")


def describe_group(session: Session, name: str) -> list[ConfigEntry]:
    """Return the configs of a group, present or not; those that were not set by defaults."""
    check_group_resource(session, name, Operation.DESCRIBE_CONFIGS)
    values = session.node.shares.configs.get(group_name(session, name))
    entries = []
    for key, spec in SPECS.items():
        is_set = key in values
        value = values.get(key, spec.default)
        source = ConfigSource.GROUP if is_set else ConfigSource.DEFAULT
        synonyms = [ConfigSynonym(key, spec.default, ConfigSource.DEFAULT)]
        if is_set:
            synonyms.insert(0, ConfigSynonym(key, value, source))
        entries.append(
            ConfigEntry(
                key,
                value,
                not is_set,
                source,
                spec.type,
                spec.documentation,
                tuple(synonyms),
            )
        )
    return entries


async def alter_group(
    session: Session, name: str, changes: Mapping[str, str | None], *, dry: bool
) -> None:
    """Set configs of a group; None restores a default. ``dry``: check only.

    Errors: ``InvalidConfig`` and others of ``ShareGroups.alter_configs``.
    """
    if dry:
        check_changes(changes)
    else:
        await session.node.shares.alter_configs(group_name(session, name), changes)
