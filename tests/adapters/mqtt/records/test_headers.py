"""The table of docs/protocols/mqtt.md, cell by cell, in both directions."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.mapping import record_run, runs_of_batch
from adapters.mqtt.records.headers import parse_headers
from adapters.mqtt.route_config import RouteConfig
from adapters.mqtt.routes import Routes
from adapters.mqtt.wire import PublishProperties, PublishRun
from gateway.errors import CorruptBatch
from gateway.model import Record, encode_varint
from gateway.records.codec import (
    Headers,
    decode_batch,
    encode_batch,
    encode_headers,
    encode_runs,
)

PAGE = Path(__file__).resolve().parents[4] / "docs" / "protocols" / "mqtt.md"
NOW_UNIX_MS = 1_700_000_000_123
ROUTE = RouteConfig(filter="dev/+", topic="devices", key="{1}", default_qos=1)
LONG = 65_536


def published(topic: bytes, payload: bytes, **fields: Any) -> Record:
    """Return the record that a Kafka consumer gets of a publish."""
    run = PublishRun(topic, [payload], **{"qos": 1, **fields})
    routed = Routes(MqttConfig(routes=(ROUTE,))).find(topic, run.qos)
    made = record_run(run, routed, client_id="c1", now_unix_ms=NOW_UNIX_MS)
    (record,) = decode_batch(encode_runs([made]))
    return record


def test_header_prefixes_of_other_adapters_are_reserved() -> None:
    user_properties = (("lines.x", "1"), ("line.x", "2"))
    run = PublishRun(b"a", [b""], properties=PublishProperties(user_properties=user_properties))
    blocks = [
        decode_batch(encode_runs([record_run(run, routes.find(b"a", 1), "", NOW_UNIX_MS)]))
        for routes in (Routes(MqttConfig(), ("lines.",)), Routes(MqttConfig()))
    ]
    names = [[name for name, _ in record.headers] for (record,) in blocks]
    assert [one[-2:] for one in names] == [
        ["mqtt.user.lines.x", "line.x"],
        ["lines.x", "line.x"],
    ]


def of_properties(**fields: Any) -> list[tuple[str, bytes | None]]:
    """Return the headers that properties make, but the one that is always there."""
    record = published(b"a", b"", properties=PublishProperties(**fields))
    return [header for header in record.headers if header != ("mqtt.client", b"c1")]


def received(
    key: bytes | None = b"a", value: bytes | None = b"v", headers: Headers = ()
) -> PublishRun:
    """Return the run that subscribers get of a Kafka producer's record."""
    (run,) = runs_of(key, value, headers, Counter())
    return run


def runs_of(
    key: bytes | None, value: bytes | None, headers: Headers, skipped: Counter[str]
) -> list[PublishRun]:
    batch = encode_batch([(NOW_UNIX_MS, key, value, headers)])
    return runs_of_batch(batch, ROUTE, from_offset=0, skipped=skipped)


def user(headers: Headers) -> tuple[tuple[str, str], ...]:
    return received(headers=headers).properties.user_properties


INTO_THE_LOG: dict[str, tuple[Any, Any]] = {
    "Payload": (published(b"a", b"").value, b""),
    "Topic Name": (published(b"x/y", b"p").key, b"x/y"),
    "Topic Name, when the key is another": (
        (published(b"dev/7", b"p").key, published(b"dev/7", b"p").headers),
        (b"7", (("mqtt.topic", b"dev/7"), ("mqtt.client", b"c1"))),
    ),
    "Client Identifier": (published(b"a", b"p").headers, (("mqtt.client", b"c1"),)),
    "QoS": (
        [published(b"a", b"p", qos=qos).headers[1:] for qos in (0, 1, 2)],
        [(("mqtt.qos", b"0"),), (), (("mqtt.qos", b"2"),)],
    ),
    "RETAIN": (published(b"a", b"p", retain=True).headers[1:], (("mqtt.retain", b"1"),)),
    "Payload Format Indicator": (
        [of_properties(payload_format_indicator=value) for value in (0, 1)],
        [[("mqtt.payload-format-indicator", b"%d" % value)] for value in (0, 1)],
    ),
    "Message Expiry Interval": (
        of_properties(message_expiry_interval=60),
        [("expires-at", b"1700000060123")],
    ),
    "Content Type": (
        of_properties(content_type="text/é"),
        [("content-type", "text/é".encode())],
    ),
    "Response Topic": (of_properties(response_topic="re/1"), [("reply-to", b"re/1")]),
    "Correlation Data": (
        [of_properties(correlation_data=value) for value in (b"", b"\x00\xff")],
        [[("correlation-id", value)] for value in (b"", b"\x00\xff")],
    ),
    "User Property": (
        of_properties(user_properties=(("b", "1"), ("a", "é"), ("b", ""), ("", "x"))),
        [("b", b"1"), ("a", "é".encode()), ("b", b""), ("", b"x")],
    ),
    "User Property with a reserved name": (
        of_properties(user_properties=(("mqtt.qos", "2"), ("deliver-at", "1"), ("dlq.x", ""))),
        [
            ("mqtt.user.mqtt.qos", b"2"),
            ("mqtt.user.deliver-at", b"1"),
            ("mqtt.user.dlq.x", b""),
        ],
    ),
    "Topic Alias, Subscription Identifier, DUP, Packet Identifier": (
        (
            of_properties(topic_alias=7, subscription_identifiers=(3,)),
            published(b"a", b"p", dup=True, packet_ids=[9]).headers,
        ),
        ([], (("mqtt.client", b"c1"),)),
    ),
}

OUT_OF_THE_LOG: dict[str, tuple[Any, Any]] = {
    "value": (received(value=b"").payloads, [b""]),
    "null value": (
        (received(value=None).payloads, received(value=None).properties.user_properties),
        ([b""], (("mqtt.null", "1"),)),
    ),
    "`mqtt.topic`, usable": (
        received(key=b"k", headers=[("mqtt.topic", b"a/b")]).topic,
        b"a/b",
    ),
    "key": (received(key=b"a/b", headers=[("mqtt.topic", b"a/+")]).topic, b"a/b"),
    "`mqtt.client`": (
        (
            received(headers=[("mqtt.client", b"c2")]).client_id,
            user([("mqtt.client", b"c2")]),
        ),
        ("c2", ()),
    ),
    "`mqtt.qos`": (
        [received(headers=headers).qos for headers in ([("mqtt.qos", b"2")], [])],
        [2, 1],
    ),
    "`mqtt.retain`": (received(headers=[("mqtt.retain", b"1")]).retain, True),
    "`mqtt.payload-format-indicator`": (
        received(
            headers=[("mqtt.payload-format-indicator", b"1")]
        ).properties.payload_format_indicator,
        1,
    ),
    "`expires-at`": (
        [received(headers=[("expires-at", v)]).expires_at_unix_ms for v in (b"1700", b"0")],
        [1700, 1],
    ),
    "`content-type`": (
        received(headers=[("content-type", b"text/x")]).properties.content_type,
        "text/x",
    ),
    "`reply-to`": (received(headers=[("reply-to", b"$r/1")]).properties.response_topic, "$r/1"),
    "`correlation-id`": (
        received(headers=[("correlation-id", b"\xff\x00")]).properties.correlation_data,
        b"\xff\x00",
    ),
    "`mqtt.user.<name>`": (
        user([("mqtt.user.mqtt.user.a", b"1"), ("mqtt.user.reply-to", b"x")]),
        (("mqtt.user.a", "1"), ("reply-to", "x")),
    ),
    "any other header": (
        user([("b", b"1"), ("dlq.reason", b"x"), ("b", b""), ("mqtt.other", b"y")]),
        (("b", "1"), ("dlq.reason", "x"), ("b", ""), ("mqtt.other", "y")),
    ),
    "header with a null value": (
        user([("a", None), ("content-type", None)]),
        (("a;null", ""), ("content-type;null", "")),
    ),
    "header whose value is no MQTT string": (
        user([("a", b"\xff"), ("b", b"\x00"), ("content-type", b"\xff")]),
        (("a;base64", "/w=="), ("b;base64", "AA=="), ("content-type;base64", "/w==")),
    ),
    "header whose name is no MQTT string": (
        (
            user([("a\x00b", b"1")]),
            parse_headers(b"\x02\x06a\xffb\x021").properties.user_properties,
        ),
        ((("a\ufffdb", "1"),), (("a\ufffdb", "1"),)),
    ),
    "header above 65,535 bytes, as shown": (
        user([("a", b"x" * LONG), ("n" * LONG, b""), ("b", b"1"), ("c", b"\xff" * 50_000)]),
        (("b", "1"),),
    ),
    "well-known header that cannot be what it says": (
        user(
            [
                ("expires-at", b"soon"),
                ("expires-at", b"9" * 19),
                ("reply-to", b"a/#"),
                ("reply-to", b""),
                ("content-type", b"one"),
                ("content-type", b"two"),
            ]
        ),
        (
            ("expires-at", "soon"),
            ("expires-at", "9" * 19),
            ("reply-to", "a/#"),
            ("reply-to", ""),
            ("content-type", "two"),
        ),
    ),
    "control header that cannot be what it says": (
        (
            received(headers=[("mqtt.qos", b"7"), ("mqtt.retain", b"yes")]).qos,
            user([("mqtt.qos", b"7"), ("mqtt.topic", b"b"), ("mqtt.topic", b"c")]),
        ),
        (1, ()),
    ),
}


def rows(section: str) -> list[str]:
    """Return the first cells of the table under a heading."""
    text = PAGE.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| (.+?) \|", text, re.MULTILINE)[1:]


@pytest.mark.parametrize("cell", INTO_THE_LOG)
def test_into_the_log(cell: str) -> None:
    made, expected = INTO_THE_LOG[cell]
    assert made == expected


@pytest.mark.parametrize("cell", OUT_OF_THE_LOG)
def test_out_of_the_log(cell: str) -> None:
    made, expected = OUT_OF_THE_LOG[cell]
    assert made == expected


def test_every_row_of_the_page_is_tested() -> None:
    assert rows("From MQTT into the log") == list(INTO_THE_LOG)
    assert rows("Out of the log to MQTT") == list(OUT_OF_THE_LOG)


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"a/+", b"#", b"$SYS/x", b"a\x00"])
def test_a_record_without_a_usable_name_is_skipped_and_counted(key: bytes | None) -> None:
    skipped: Counter[str] = Counter()

    assert runs_of(key, b"v", [("mqtt.topic", b"$x")], skipped) == []
    assert skipped == {"no_topic_name": 1}


def test_a_header_that_is_too_long_is_counted() -> None:
    skipped: Counter[str] = Counter()

    assert len(runs_of(b"a", b"v", [("h", b"x" * LONG)], skipped)) == 1
    assert skipped == {"header_too_long": 1}


@pytest.mark.parametrize(
    "block",
    [
        b"",
        encode_varint(-1),
        encode_varint(1),
        encode_varint(1 << 40),
        encode_headers([("a", b"1")])[:-1],
        encode_headers([("a", b"1")]) + b"\x00",
        b"\x02\x01\x00",  # a name that is null
    ],
)
def test_a_block_that_contradicts_itself_is_refused(block: bytes) -> None:
    with pytest.raises(CorruptBatch):
        parse_headers(block)
