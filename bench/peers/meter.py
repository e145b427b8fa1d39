"""What a Python load sends: how much was acknowledged, and how long each request took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from aerobee.bench.measure import Latencies
from peers.parts import Answer, Part


@dataclass(slots=True)
class Meter:
    """Counts what is acknowledged after the warm-up."""

    start: float
    end: float
    sent: int = 0
    messages: int = 0
    took: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, part: Part) -> Meter:
        start = time.perf_counter() + part.seconds / 3
        return cls(start, start + part.seconds)

    def acknowledged(self, began: float, now: float, messages: int) -> None:
        self.sent += messages
        if self.start <= now <= self.end:
            self.messages += messages
            self.took.append(now - began)

    def answer(self) -> Answer:
        took = Latencies.of(self.took or [0.0])
        elapsed_s = self.end - self.start
        return Answer(self.messages, elapsed_s, self.sent, took.p50_us, took.p99_us)
