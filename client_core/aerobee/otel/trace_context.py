"""Trace context in the properties of messages: injected, and extracted again.

The process's propagator chooses the properties: by default `traceparent`, `tracestate` and
`baggage`, as named by W3C.
"""

from __future__ import annotations

from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.runtime.errors import MessageIllegal
from aerobee.store.format.properties import PropertyIllegal, PropertyName, encode_properties
from aerobee.store.format.record import RecordCorrupt
from aerobee.store.format.reserved_properties import allowed_of

TRACEPARENT: Final = "traceparent"


def injected(context: Context) -> tuple[dict[str, str], bytes]:
    """The properties that carry a context, and their stored form."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    added = {name: value for name, value in carrier.items() if _is_storable(name, value)}
    return added, encode_properties(added)


def _is_storable(name: str, value: str) -> bool:
    if not value or not name.strip() or allowed_of(name) is not None:
        return False
    try:
        encode_properties({name: value})
    except PropertyIllegal:
        return False
    return True


def context_of(message: ReceivedMessage | Message) -> Context:
    """The context in which a message was sent, as the parent of work on it.

    For a message without one it is empty, so that a span in it starts a trace. Messages of
    RocketMQ's gRPC clients may have it as their `trace_context` instead of a property.

    Never raises: a damaged message has no context.
    """
    try:
        properties = message.properties
    except (RecordCorrupt, MessageIllegal):
        return Context()
    if TRACEPARENT not in properties:
        system = properties.get(PropertyName.TRACE_CONTEXT)
        if system:
            properties = {**properties, TRACEPARENT: system}
    return propagate.extract(properties, Context())


def span_context_of(message: ReceivedMessage | Message) -> trace.SpanContext | None:
    """Of the span that sent a message; None: it has none."""
    found = trace.get_current_span(context_of(message)).get_span_context()
    return found if found.is_valid else None
