"""Topics that rules deny by their exact name: left out of wider subscriptions, when matched.

What a topic matched is remembered, so this costs nothing for each message, and nothing at all
where no such rule is; a topic that no rule names costs a look-up when it is matched anew.
"""

from adapters.mqtt.access.rule_filters import has_placeholder
from adapters.mqtt.access.stored_rules import StoredRules
from adapters.mqtt.config import MqttConfig
from adapters.mqtt.delivery.distributor import Distributor
from adapters.mqtt.ports import Subscriber
from adapters.mqtt.subscriptions.filters import has_wildcard


class ExactDenials:
    """The names, and the question that those who match topics ask. Loop only."""

    def __init__(
        self, config: MqttConfig, stored: StoredRules, distributor: "Distributor"
    ) -> None:
        self._configured = [
            rule.filter
            for rule in config.acl
            if rule.match == "eq" and rule.effect == "deny" and rule.action != "publish"
        ]
        self._stored = stored
        self._distributor = distributor
        self._names: frozenset[str] = frozenset()
        self._has_placeholders = False
        self.is_empty = True
        self.renew()

    def renew(self) -> None:
        """Take up the rules of now, and have topics matched anew where any of them matters."""
        filters = [*self._configured, *self._stored.exact_denials()]
        names = [one for one in filters if not has_wildcard(one)]
        was_empty, self.is_empty = self.is_empty, not names
        self._names = frozenset(names)
        self._has_placeholders = any(map(has_placeholder, names))
        if not (was_empty and self.is_empty):
            leaves_out = None if self.is_empty else self.leaves_out
            self._distributor.trie.leave_out(leaves_out)
            self._distributor.ended.leave_out(leaves_out)

    def leaves_out(self, subscriber: "Subscriber", topic: str) -> bool:
        """Say whether a subscriber gets no message of a topic. A group is never left out."""
        if not (self._has_placeholders or topic in self._names):
            return False
        if subscriber.is_group or subscriber.connection is None:
            return False
        access = subscriber.connection.access
        return access is not None and access.leaves_out(topic.split("/"))
