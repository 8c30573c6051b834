"""Audit log lines: changes with user, address and result, and refused logins.

A change that was made has one line each, at ``info``. What was refused is written at ``warning``
and at a bounded rate (``log.refusals_per_s_max``): whoever is refused can ask again without end.
The line after a gap says how many are missing.
"""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

import structlog

from gateway.auth.ports import Principal, Rule
from gateway.clock import Clock, SystemClock
from gateway.config.log import LogConfig
from gateway.model import DEFAULT_NAMESPACE, TopicName

TEXT_CHARS_MAX: Final = 300
_NAMELESS: Final = "-"
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}

log = structlog.get_logger()


class Audit:
    """Writer of audit lines. Loop only; not on a hot path."""

    def __init__(self, config: LogConfig | None = None, clock: Clock | None = None) -> None:
        self._per_s_max = (config or LogConfig()).refusals_per_s_max
        self._clock = clock or SystemClock()
        self._second = -1
        self._written = 0  # in this second
        self._left_out = 0

    @contextmanager
    def change(self, who: Principal, action: str, name: str) -> Iterator[None]:
        """Write one line about the change made within the context, whether it succeeds or fails."""
        try:
            yield
        except Exception as error:
            self.note(who, action, name, error)
            raise
        self.note(who, action, name)

    def note(
        self, who: Principal, action: str, name: str, error: Exception | None = None
    ) -> None:
        """Write one line about a change that succeeded, or that failed with ``error``."""
        fields = {
            "action": action,
            "name": shown(name) or _NAMELESS,
            "who": shown(who.name),
            "protocol": who.protocol,
            "peer": who.host,
        }
        if error is None:
            log.info("audit", **fields, result="done")
            return
        detail = f"{type(error).__name__}: {shown(str(error))}".rstrip(": ")
        self._write_refused("audit", {**fields, "result": "refused", "detail": detail})

    def login_refused(self, protocol: str, host: str, user: str, reason: str) -> None:
        """Write one line about a failed login; ``user`` is the name that the peer gave."""
        fields = {
            "who": shown(user) or _NAMELESS,
            "protocol": protocol,
            "peer": host,
            "detail": shown(reason),
        }
        self._write_refused("login refused", fields)

    def _write_refused(self, event: str, fields: MutableMapping[str, Any]) -> None:
        second = self._clock.monotonic_ms() // 1_000
        if second != self._second:
            self._second, self._written = second, 0
        if self._written >= self._per_s_max:
            self._left_out += 1
            return
        self._written += 1
        if self._left_out:
            fields["left_out"], self._left_out = self._left_out, 0
        log.warning(event, **fields)


def rule_text(rule: Rule) -> str:
    """Return a rule as text.

    >>> from gateway.auth.ports import Operation, PatternKind, ResourceType
    >>> rule_text(Rule("ada", Operation.READ, ResourceType.TOPIC, PatternKind.PREFIX, "a."))
    'allow read on topic prefix a. to ada'
    """
    text = (
        f"{'allow' if rule.allow else 'deny'} {rule.operation.value} on "
        f"{rule.resource_type.name} {rule.pattern_kind.name} {rule.pattern}".rstrip()
    )
    narrow = {"protocol": rule.protocol, "host": rule.host, "client": rule.client}
    limits = "".join(f" {name} {value}" for name, value in narrow.items() if value != "*")
    return f"{text} to {rule.principal}{limits}"


def topic_text(name: TopicName) -> str:
    """Return a topic's or queue's name, with a namespace other than the default in front."""
    return name.name if name.namespace == DEFAULT_NAMESPACE else f"{name.namespace}/{name.name}"


def shown(text: str) -> str:
    r"""Return a peer's text, escaped so that it cannot look like another log line.

    >>> shown("ada\n2026 [info] audit")
    'ada\\x0a2026 [info] audit'
    """
    cut = text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}..."
    return cut.translate(_ESCAPES)
