"""One subscription: what a client asked for in SUBSCRIBE, and since when (section 3.8.3)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

NO_STARTS: Final[Mapping[int, int]] = MappingProxyType({})  # shared: there may be a million


class Subscription:
    """A topic filter with its options.

    ``topic_filter`` is without ``$share/<group>/``; ``group`` is None when it is not shared.
    ``identifier`` is 0 for none. ``starts`` has, per partition id, the first offset that counts;
    a partition that is not in it counts from its first. The options never change: SUBSCRIBE
    with the same filter makes another one (MQTT-3.8.4-3); ``starts`` is replaced as a whole.
    """

    __slots__ = (
        "group",
        "identifier",
        "no_local",
        "qos",
        "retain_as_published",
        "retain_handling",
        "starts",
        "topic_filter",
    )

    def __init__(  # noqa: PLR0913 - the options of SUBSCRIBE
        self,
        topic_filter: str,
        *,
        group: str | None = None,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
        starts: Mapping[int, int] = NO_STARTS,
    ) -> None:
        self.topic_filter = topic_filter
        self.group = group
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier
        self.starts = starts

    def __repr__(self) -> str:
        shared = "" if self.group is None else f" of group {self.group}"
        return f"<Subscription {self.topic_filter[:80]!r}{shared} qos={self.qos}>"

    def is_alike(self, other: "Subscription") -> bool:
        """Say whether what is delivered by two subscriptions of a filter looks the same."""
        return (
            self.qos == other.qos
            and self.identifier == other.identifier
            and self.no_local == other.no_local
            and self.retain_as_published == other.retain_as_published
        )

    def without_starts(self) -> "Subscription":
        """Return another one with these options; it does not hold the starts in memory."""
        return Subscription(
            self.topic_filter,
            group=self.group,
            qos=self.qos,
            no_local=self.no_local,
            retain_as_published=self.retain_as_published,
            retain_handling=self.retain_handling,
            identifier=self.identifier,
        )

    def counts(self, partition_id: int, offset: int) -> bool:
        """Say whether a message at that place came after the subscription was made."""
        return offset >= self.starts.get(partition_id, 0)


def written_filter(subscription: Subscription) -> str:
    """Return the filter as the client wrote it, with ``$share/<group>/``."""
    if subscription.group is None:
        return subscription.topic_filter
    if subscription.group == "$queue":
        return f"$queue/{subscription.topic_filter}"
    return f"$share/{subscription.group}/{subscription.topic_filter}"
