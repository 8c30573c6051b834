"""docs/fidelity.md, cell by cell: stock clients at both ends of one gateway."""

from collections.abc import Callable
from itertools import product

import pytest

from tests.interop.fidelity.exchange import Exchanged, run
from tests.interop.fidelity.outcomes import Cannot, Row
from tests.interop.fidelity.samples import (
    AMQP,
    EXPIRY_S,
    KAFKA,
    MQTT,
    PROTOCOLS,
    SAMPLES,
    SQS,
    Sample,
    Seen,
    as_text,
    is_due,
    key_of,
)
from tests.interop.fidelity.table import DUE, IN_ORDER, PAGE, ROWS, page

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("fidelity"),
    # Sockets that paho leaves to the garbage collector are its own affair.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

VALUE = {KAFKA: "value", MQTT: "payload", SQS: "MessageBody", AMQP: "body"}
EXPIRIES: dict[str, Callable[[int, Seen], float]] = {
    "header `expires-at`": lambda unix_ms, seen: unix_ms / 1_000 - seen.arrived_s,
    "attribute `expires-at`": lambda unix_ms, seen: unix_ms / 1_000 - seen.arrived_s,
    "Message Expiry Interval": lambda left_s, _: left_s,
    "`expiration`": lambda ttl_ms, _: ttl_ms / 1_000,
}
"""Seconds that are left by the value of a field."""
SLOW_S = 60  # that a message may be on its way
CELLS = [
    (row, sender, receiver)
    for row, sender, receiver in product(ROWS, PROTOCOLS, PROTOCOLS)
    if not row.cell(sender).unsent
]


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> Exchanged:
    """All messages, exchanged once."""
    sent = {
        protocol: [row.name for row in ROWS if not row.cell(protocol).unsent]
        for protocol in PROTOCOLS
    }
    return run(tmp_path_factory.mktemp("fidelity"), sent)


def sent_text(sample: Sample, topic: str) -> str:
    """Return what a field has that keeps the sample's property."""
    if sample.name in {"key", "group"}:
        return key_of(topic, sample.name)
    if sample.name.endswith("value"):
        return "null" if sample.value is None else as_text(sample.value)
    if len(sample.headers) > 1:
        return ",".join(f"{name}={as_text(value)}" for name, value in sample.headers)
    if sample.headers:
        return as_text(sample.headers[0][1])
    known = (
        sample.timestamp_unix_s,
        sample.content_type,
        sample.correlation,
        sample.reply_to,
        sample.expiry_s,
        "yes" if sample.delay_s else None,
        sample.priority,
        sample.dedup_id,
    )
    [found] = [str(value) for value in known if value is not None]
    return found


def fields_of(seen: Seen, sample: Sample, receiver: str, sent_s: float) -> dict[str, str]:
    """Return the fields of a message, with those that are of all its headers or of its time."""
    names = {name for name, _ in sample.headers}
    pairs = [f"{name}={value}" for name, value in seen.headers if name in names]
    fields = dict(seen.fields)
    fields[IN_ORDER[receiver]] = ",".join(sorted(pairs) if receiver == SQS else pairs)
    if sample.delay_s and is_due(seen, sent_s):
        fields[DUE] = "yes"
    if sample.expiry_s:
        for name, to_left_s in EXPIRIES.items():
            if name in fields and is_near(to_left_s(int(fields[name]), seen)):
                fields[name] = str(sample.expiry_s)
    return fields


def is_near(left_s: float) -> bool:
    """Say whether so much may be left of the expiry."""
    return EXPIRY_S - SLOW_S < left_s < EXPIRY_S + 1


@pytest.mark.parametrize(
    ("row", "sender", "receiver"),
    CELLS,
    ids=[f"{row.name}-{sender}-{receiver}" for row, sender, receiver in CELLS],
)
def test_a_cell_says_what_clients_see(
    exchanged: Exchanged, row: Row, sender: str, receiver: str
) -> None:
    outcome = row.outcome(sender, receiver)
    samples = SAMPLES[row.name]
    messages = exchanged.seen[sender, receiver, row.name]
    assert len(messages) == len(samples)

    for sample, seen in zip(samples, messages, strict=True):
        fields = fields_of(seen, sample, receiver, exchanged.sent_s[sender, row.name])
        sent = sent_text(sample, seen.topic)
        if not row.name.endswith("value"):
            assert fields[VALUE[receiver]] == as_text(sample.value or b"")
        if not isinstance(outcome, Cannot):
            assert fields.get(outcome.field) == (getattr(outcome, "value", "") or sent)
        elif outcome.field:
            assert fields[outcome.field] == outcome.value != sent
        else:
            assert sent not in fields.values()


def test_the_page_is_the_one_that_the_table_makes() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.interop.fidelity.table"
