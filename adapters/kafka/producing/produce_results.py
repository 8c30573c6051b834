"""Results of a Produce request: from the outcomes of its batches to the response."""

from collections.abc import Sequence

from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs.current_leader import current_leader
from adapters.kafka.codecs.metadata_codec import BrokerAddress
from adapters.kafka.codecs.produce_codec import ProducedResult, encode_produce_response
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.node.large_requests import join_slices
from adapters.kafka.producing.batch_appends import Outcome, Outcomes, Topics
from gateway.errors import GatewayError, PeerError
from gateway.writer import Write


class InvalidAcks(GatewayError):
    """The request's acks is none of 0, 1 and -1 (all)."""


def produce_results(
    outcomes: Outcomes, failure: GatewayError | None
) -> list[tuple[TopicRef, list[ProducedResult]]]:
    """Return the result of each batch; ``failure`` is the append's error, None if it is durable."""
    return [
        (ref, [_result(number, outcome, failure) for number, outcome in results])
        for ref, results in outcomes
    ]


def encode_slices(
    version: int,
    topics: Topics,
    done: list[tuple[Outcomes, GatewayError | None]],
    nodes: Sequence[BrokerAddress],
    throttle_ms: int,
) -> bytes:
    """Encode the response, in a thread; outcomes are freed slice by slice, not all at once."""
    results = []
    for outcomes, failure in done:
        results.append(produce_results(outcomes, failure))
        outcomes.clear()
    return encode_produce_response(version, join_slices(topics, results), nodes, throttle_ms)


def check_without_reply(outcomes: Outcomes, failure: GatewayError | None) -> None:
    """Raise ``PeerError`` if a request with acks=0 failed: closing is the only error signal."""
    errors = [o for _, results in outcomes for _, o in results if isinstance(o, GatewayError)]
    if failure is not None:
        errors.append(failure)
    if errors:
        msg = f"produce with acks=0 failed: {type(errors[0]).__name__}: {errors[0]}"
        raise PeerError(msg)


def _result(number: int, outcome: Outcome, failure: GatewayError | None) -> ProducedResult:
    if isinstance(outcome, GatewayError):
        leader = current_leader(outcome)
        return ProducedResult(number, _code(outcome), -1, -1, -1, str(outcome) or None, leader)
    if failure is not None:
        return ProducedResult(number, _code(failure), -1, -1, -1, str(failure) or None)
    partition = outcome.partition
    append_time_ms = -1
    if (
        partition.topic.settings.log_append_time
        and isinstance(outcome, Write)
        and not outcome.is_split
    ):
        append_time_ms = outcome.header.max_timestamp_unix_ms
    return ProducedResult(
        number,
        ErrorCode.NONE,
        outcome.base_offset,
        append_time_ms,
        partition.log_start_offset,
        None,
    )


def _code(error: GatewayError) -> ErrorCode:
    if isinstance(error, InvalidAcks):
        return ErrorCode.INVALID_REQUIRED_ACKS
    return code_of(error)
