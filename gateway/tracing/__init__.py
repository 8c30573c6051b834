"""Traces of single messages, for OpenTelemetry: see docs/tracing.md. Off without ``[otel]``."""
