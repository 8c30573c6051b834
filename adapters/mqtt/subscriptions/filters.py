"""Topic names and topic filters (MQTT 5.0 sections 4.7 and 4.8.2; 3.1.1 section 4.7).

A name is what a message is published to, a filter is what a client subscribes to; both are
levels with ``/`` between them, and an empty level is a level. The largest has 65,535 bytes, so
nothing here calls itself.
"""

from typing import Final, NoReturn

from adapters.mqtt.errors import MqttError, ReasonCode

TOPIC_BYTES_MAX: Final = 65_535  # a UTF-8 string's length is two bytes (section 1.5.4)
QUEUE_GROUP: Final = "$queue"  # the group of ``$queue/<filter>``; $share may not name it
_SHARE_PREFIX: Final = "$share/"
_QUEUE_PREFIX: Final = "$queue/"
_WILDCARDS: Final = frozenset("+#")
_CHARACTER_BYTES_MAX: Final = 4


def check_filter(text: str, *, levels_max: int) -> None:
    """Refuse what is no topic filter, with reason code 0x8F.

    ``+`` and ``#`` stand for whole levels, ``#`` for the last only (MQTT-4.7.1-1, MQTT-4.7.1-2);
    at least one character, no U+0000 (MQTT-4.7.3-1, MQTT-4.7.3-2), at most ``levels_max`` levels.
    """
    _check_text(text, ReasonCode.TOPIC_FILTER_INVALID, "filter", levels_max)
    if "#" in text and text != "#" and (not text.endswith("/#") or text.count("#") > 1):
        _refuse_filter(text, "has '#' elsewhere than as its last level")
    if "+" in text and any("+" in level and level != "+" for level in text.split("/")):
        _refuse_filter(text, "has '+' beside something else in one level")


def parse_subscription(text: str, *, levels_max: int) -> tuple[str | None, str]:
    """Return (group, filter) of what a client subscribes to; group None: not shared.

    ``$share/<group>/<filter>`` is a shared subscription (section 4.8.2); ``$queue/<filter>`` is
    one of the group ``QUEUE_GROUP``. Errors: as ``check_filter``; also for a group that is empty,
    has a wildcard or no filter after it (MQTT-4.8.2-1, MQTT-4.8.2-2), or is ``QUEUE_GROUP``.
    """
    if text.startswith(_QUEUE_PREFIX):
        group, topic_filter = QUEUE_GROUP, text[len(_QUEUE_PREFIX) :]
    elif text.startswith(_SHARE_PREFIX):
        group, slash, topic_filter = text[len(_SHARE_PREFIX) :].partition("/")
        if not group or not slash or not _WILDCARDS.isdisjoint(group):
            _refuse_filter(text, "is not $share/<group>/<filter>")
        if group == QUEUE_GROUP:
            _refuse_filter(text, "names the group of $queue/<filter>")
    else:
        check_filter(text, levels_max=levels_max)
        return None, text
    check_filter(topic_filter, levels_max=levels_max)
    return group, topic_filter


def filter_bytes(text: str) -> int:
    """Return the bytes of a filter as a client wrote it.

    >>> filter_bytes("a/+"), filter_bytes("é/#")
    (3, 4)
    """
    return len(text) if text.isascii() else len(text.encode())


def has_wildcard(topic_filter: str) -> bool:
    """Say whether a checked filter may match more than the one topic of the same name."""
    return "+" in topic_filter or topic_filter.endswith("#")


def matches(topic_filter: str, topic: str) -> bool:
    """Say whether a checked filter matches a checked topic name (section 4.7).

    ``a/#`` matches ``a`` too; a wildcard at the beginning matches no name that begins with ``$``
    (MQTT-4.7.2-1).

    >>> matches("sport/+/#", "sport/tennis"), matches("#", "$SYS/uptime")
    (True, False)
    """
    if topic.startswith("$") and topic_filter[0] in _WILDCARDS:
        return False
    levels = topic.split("/")
    wanted = topic_filter.split("/")
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index == len(levels) or level not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)


def check_publish_topic(topic: str, *, levels_max: int) -> None:
    """Refuse what no client may publish to, with reason code 0x90.

    Wildcards (MQTT-3.3.2-2, MQTT-3.1.3-11 for a will), the empty name, U+0000, more than
    ``levels_max`` levels, and names that begin with ``$``, which are the server's (4.7.2).
    """
    _check_text(topic, ReasonCode.TOPIC_NAME_INVALID, "name", levels_max)
    if topic.startswith("$") or "+" in topic or "#" in topic:
        msg = f"topic name {topic[:80]!r} has a wildcard or begins with '$'"
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, msg)


def is_topic_name(data: bytes) -> bool:
    """Say whether bytes from elsewhere are a topic name that subscribers may be shown.

    >>> is_topic_name(b"a/b"), is_topic_name(b"$SYS/x"), is_topic_name(b"a/+")
    (True, False, False)
    """
    if not 0 < len(data) <= TOPIC_BYTES_MAX or data.startswith(b"$"):
        return False
    if b"+" in data or b"#" in data or b"\x00" in data:
        return False
    return is_utf8(data)


def is_utf8(data: bytes) -> bool:
    """Say whether bytes are well-formed UTF-8 (MQTT-1.5.4-1: surrogates are not)."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_text(text: str, code: ReasonCode, kind: str, levels_max: int) -> None:
    """Check what names and filters have in common."""
    if not text:
        raise MqttError(code, f"topic {kind} is empty")
    if "\x00" in text or (
        len(text) > TOPIC_BYTES_MAX // _CHARACTER_BYTES_MAX
        and len(text.encode("utf-8", "surrogatepass")) > TOPIC_BYTES_MAX
    ):
        raise MqttError(code, f"topic {kind} has U+0000 or more than {TOPIC_BYTES_MAX} bytes")
    if text.count("/") >= levels_max:
        raise MqttError(code, f"topic {kind} has more than {levels_max} levels")


def _refuse_filter(text: str, why: str) -> NoReturn:
    raise MqttError(ReasonCode.TOPIC_FILTER_INVALID, f"topic filter {text[:80]!r} {why}")
