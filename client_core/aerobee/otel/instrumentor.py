"""Instruments every client of the process at once, for `opentelemetry-instrument`.

The agent finds the class by its entry point. Clients made while it is on get a telemetry, unless
they were given one. Owns: the original constructors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from aerobee.consumer_client.pull_consumer import PullConsumer
from aerobee.consumer_client.push_consumer import PushConsumer
from aerobee.otel.telemetry import OpenTelemetry
from aerobee.producer_client.producer import Producer

CLIENTS: Final = (Producer, PullConsumer, PushConsumer)
"""The blocking ones make these."""


class AerobeeInstrumentor:
    """Switches telemetry on for all clients made from now on, and off again."""

    def instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        **of_the_agent: object,
    ) -> None:
        """On. Does nothing if it is on."""
        telemetry = OpenTelemetry(tracer_provider=tracer_provider, meter_provider=meter_provider)
        for client in CLIENTS:
            if not hasattr(client.__init__, "__wrapped__"):
                setattr(client, "__init__", _with(client.__init__, telemetry))  # noqa: B010

    def uninstrument(self, **of_the_agent: object) -> None:
        """Off. Existing clients keep their telemetry."""
        for client in CLIENTS:
            original = getattr(client.__init__, "__wrapped__", None)
            if original is not None:
                setattr(client, "__init__", original)  # noqa: B010


def _with(original: Callable[..., None], telemetry: OpenTelemetry) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: object, *args: Any, **named: Any) -> None:
        if named.get("telemetry") is None:
            named["telemetry"] = telemetry
        original(self, *args, **named)

    return __init__
