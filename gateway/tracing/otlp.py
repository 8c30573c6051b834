"""Encoding of spans as OTLP (protobuf), by the message types of ``opentelemetry-proto``.

The SDK is not used: its queue drops spans without a count that can be read, and it brings globals
and threads of its own.
"""

import secrets
from collections.abc import Mapping, Sequence

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

from gateway.tracing.span import Span

_SPAN_ID_BYTES = 8
_KINDS = {
    "publish": OtlpSpan.SPAN_KIND_PRODUCER,
    "receive": OtlpSpan.SPAN_KIND_CONSUMER,
    "settle": OtlpSpan.SPAN_KIND_CONSUMER,
}


def encode_spans(spans: Sequence[Span], resource: Mapping[str, str]) -> bytes:
    """Return an ``ExportTraceServiceRequest``; each span gets a random id."""
    scope_spans = ScopeSpans(
        scope=InstrumentationScope(name="headgate"), spans=[_to_otlp(span) for span in spans]
    )
    resource_spans = ResourceSpans(
        resource=Resource(attributes=_attributes(resource)), scope_spans=[scope_spans]
    )
    data: bytes = ExportTraceServiceRequest(resource_spans=[resource_spans]).SerializeToString()
    return data


def _to_otlp(span: Span) -> OtlpSpan:
    found = OtlpSpan(
        trace_id=span.parent.trace_id,
        span_id=secrets.token_bytes(_SPAN_ID_BYTES),
        parent_span_id=span.parent.span_id,
        name=span.name,
        kind=_KINDS[span.operation],
        start_time_unix_nano=span.begun_unix_ns,
        end_time_unix_nano=span.ended_unix_ns,
        attributes=_attributes(span.attributes),
        flags=1,
    )
    if span.error:
        found.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=span.error))
    return found


def _attributes(values: Mapping[str, str | int]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(int_value=value)
            if isinstance(value, int)
            else AnyValue(string_value=value),
        )
        for key, value in values.items()
    ]
