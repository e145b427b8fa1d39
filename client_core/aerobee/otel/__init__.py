"""OpenTelemetry for Aerobee's clients: traces and metrics by its messaging conventions.

Loaded only by programs that import it; it needs `pip install ".[otel]"` in a checkout. See
docs/tracing.md.
"""

from __future__ import annotations

try:
    import opentelemetry.metrics
    import opentelemetry.trace  # noqa: F401
except ImportError as missing:
    raise ImportError(
        "aerobee.otel needs OpenTelemetry's API, which is not installed: "
        'pip install ".[otel]" in a checkout'
    ) from missing

from aerobee.otel.instrumentor import AerobeeInstrumentor
from aerobee.otel.telemetry import OpenTelemetry
from aerobee.otel.trace_context import context_of

__all__ = ["AerobeeInstrumentor", "OpenTelemetry", "context_of"]
