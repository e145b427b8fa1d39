"""What is measured of each system: the parts that a load is asked for, and its answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum


class Way(StrEnum):
    """What a load does in a part."""

    SINGLE = "single"
    """Messages by themselves; the client may put those that are in flight into one packet."""
    BATCHED = "batched"
    """Requests of many messages, or the client's own batches of as many messages in flight."""
    STEADY = "steady"
    """Sent at a steady rate to a reader of the same process, measured from the planned time."""
    READ = "read"
    """From the start of what the other parts have sent."""


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement of `seconds`, after a third of that to warm up.

    `in_flight` counts requests, each of `batch` messages; `rate` is messages a second.
    """

    way: Way
    in_flight: int = 1
    batch: int = 1
    rate: int = 0
    seconds: float = 2.0

    def scaled(self, scale: float) -> Part:
        """The same in more or less time."""
        return replace(self, seconds=self.seconds * scale)

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Part:
        asked = json.loads(line)
        return cls(**{**asked, "way": Way(asked["way"])})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a load measured. `sent` includes the warm-up; percentiles are those of requests."""

    messages: int
    elapsed_s: float
    sent: int
    p50_us: float
    p99_us: float
    server_us: float = 0.0
    """Processor time of the server for each message that was sent."""

    @classmethod
    def from_json(cls, line: bytes) -> Answer:
        return cls(**json.loads(line))

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.elapsed_s


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A part and its name in the table."""

    name: str
    part: Part


WARM_UP = (
    Part(Way.BATCHED, 2, 960, seconds=1.5),
    Part(Way.SINGLE, in_flight=64, seconds=5.0),
    Part(Way.READ, seconds=0.5),
)
"""Java compiles what runs often. Every system gets the same time, and nothing of it is counted."""
ECHO_WARM_UP = (Part(Way.SINGLE, in_flight=64, seconds=1.0),)
STEADY_PER_S = 1_000
PAGE_CACHE = (
    NamedPart("single, 64 in flight", Part(Way.SINGLE, 64)),
    NamedPart("single, 1 in flight", Part(Way.SINGLE, 1)),
    NamedPart("8 requests of 32", Part(Way.BATCHED, 8, 32)),
    NamedPart("batched, 2 x 960 in flight", Part(Way.BATCHED, 2, 960)),
    NamedPart("batched, 6 x 500 in flight", Part(Way.BATCHED, 6, 500)),
    NamedPart(f"end to end at {STEADY_PER_S:,}/s", Part(Way.STEADY, rate=STEADY_PER_S, seconds=3)),
    NamedPart("read from the start", Part(Way.READ, seconds=3)),
)
SYNC_FLUSH = (
    NamedPart("sync flush, single, 64 in flight", Part(Way.SINGLE, 64)),
    NamedPart("sync flush, single, 1 in flight", Part(Way.SINGLE, 1)),
)
ECHO = (
    NamedPart("unary echo, 64 in flight", Part(Way.SINGLE, 64)),
    NamedPart("unary echo, 1 in flight", Part(Way.SINGLE, 1)),
)
V2_WARM_UP = (
    Part(Way.SINGLE, in_flight=64, seconds=8.0),
    Part(Way.BATCHED, 8, 32, seconds=1.5),
    Part(Way.READ, seconds=1.5),
)
V2 = (
    NamedPart("SendMessage, 64 in flight", Part(Way.SINGLE, 64)),
    NamedPart("SendMessage, 1 in flight", Part(Way.SINGLE, 1)),
    NamedPart("SendMessage of 32, 8 in flight", Part(Way.BATCHED, 8, 32)),
    NamedPart(
        f"received, end to end at {STEADY_PER_S:,}/s",
        Part(Way.STEADY, rate=STEADY_PER_S, seconds=5),
    ),
    NamedPart("ReceiveMessage of 32 and AckMessage", Part(Way.READ, seconds=3)),
)
