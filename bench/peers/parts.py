"""What is measured of each system: the parts requested from a load, and its answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Final

_SECONDS_MIN: Final = 0.4


class Way(StrEnum):
    """What a load does in a part."""

    SINGLE = "single"
    """Single messages; the client may put those in flight into one packet."""
    BATCHED = "batched"
    """Requests of many messages, or the client's own batches of as many messages in flight."""
    STEADY = "steady"
    """Sent at a steady rate to a reader in the same process, measured from the planned time."""
    READ = "read"
    """Read what the other parts have sent, from its start."""
    PUSHED = "pushed"
    """The same with a listener called by the client."""
    FILL = "fill"
    """Send enough for a later part to read."""
    PACED = "paced"
    """Sent at a steady rate, measured from the planned time to the answer."""
    GATHER = "gather"
    """Clients connect that only wait; the part ends when all of them do."""
    IDLE = "idle"
    """Nothing but what those clients do on their own."""


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement of `seconds`, after a third of that to warm up.

    `in_flight` counts requests, each of `batch` messages; `rate` is messages per second; `clients`
    is the number of waiting clients to add.
    """

    way: Way
    in_flight: int = 1
    batch: int = 1
    rate: int = 0
    seconds: float = 2.0
    clients: int = 0

    def scaled(self, scale: float) -> Part:
        """The same with its time scaled, and with no more clients.

        At least `_SECONDS_MIN`: on a busy machine a shorter load measures nothing."""
        clients = max(1, int(self.clients * min(1.0, scale))) if self.clients else 0
        seconds = max(self.seconds * scale, min(self.seconds, _SECONDS_MIN))
        return replace(self, seconds=seconds, clients=clients)

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
    """Processor time of the server per message sent, or per client added."""
    server_bytes: int = 0
    """Growth of the server's memory."""

    @classmethod
    def from_json(cls, line: bytes) -> Answer:
        return cls(**json.loads(line))

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.elapsed_s

    @property
    def server_bytes_each(self) -> float:
        """Per client added."""
        return self.server_bytes / max(1, self.sent)


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A part and its name in the table; without a name, it only prepares the next."""

    name: str
    part: Part
    is_on_one_core: bool = False
    """The server has one core, and the load another."""


WARM_UP = (
    Part(Way.BATCHED, 2, 960, seconds=1.5),
    Part(Way.SINGLE, in_flight=64, seconds=5.0),
    Part(Way.READ, seconds=0.5),
)
"""Java compiles hot code. Every system gets the same warm-up, and none of it is counted."""
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
    Part(Way.FILL, seconds=1.5),
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
    NamedPart("", Part(Way.FILL, seconds=3)),
    NamedPart("ReceiveMessage of 32 and AckMessage", Part(Way.READ, seconds=3)),
)
IDLE_CLIENTS = 10_000
IDLE_SENDS_PER_S = 500
V2_IDLE_WARM_UP = (Part(Way.SINGLE, in_flight=64, seconds=6.0),)
V2_IDLE = (
    NamedPart(
        f"SendMessage at {IDLE_SENDS_PER_S}/s", Part(Way.PACED, rate=IDLE_SENDS_PER_S, seconds=10)
    ),
    NamedPart("a client that comes to wait", Part(Way.GATHER, clients=IDLE_CLIENTS)),
    NamedPart(f"{IDLE_CLIENTS:,} waiting clients", Part(Way.IDLE, seconds=40)),
    NamedPart(
        f"SendMessage at {IDLE_SENDS_PER_S}/s beside them",
        Part(Way.PACED, rate=IDLE_SENDS_PER_S, seconds=10),
    ),
)
V2_JAVA_WARM_UP = (
    Part(Way.SINGLE, in_flight=64, seconds=8.0),
    Part(Way.FILL, seconds=2.0),
    Part(Way.READ, seconds=3.0),
    Part(Way.FILL, seconds=2.0),
    Part(Way.PUSHED, seconds=3.0),
)
V2_JAVA = (
    NamedPart("Java client, SendMessage, 64 in flight", Part(Way.SINGLE, 64, seconds=4)),
    NamedPart("Java client, SendMessage, 1 in flight", Part(Way.SINGLE, 1, seconds=4)),
    NamedPart("", Part(Way.FILL, seconds=3)),
    NamedPart("Java client, pushed and acknowledged", Part(Way.PUSHED, seconds=3)),
    NamedPart("", Part(Way.FILL, seconds=3)),
    NamedPart("Java client, received by 32 and acknowledged", Part(Way.READ, seconds=3)),
)
V2_JAVA_PINNED = (
    NamedPart(
        "Java client, each on a core, SendMessage, 64 in flight",
        Part(Way.SINGLE, 64, seconds=4),
        is_on_one_core=True,
    ),
)
REMOTING_WARM_UP = (
    Part(Way.SINGLE, in_flight=64, seconds=8.0),
    Part(Way.SINGLE, in_flight=1, seconds=2.0),
    Part(Way.BATCHED, 2, 960, seconds=2.0),
    Part(Way.READ, seconds=2.0),
    Part(Way.PUSHED, seconds=2.0),
    Part(Way.STEADY, rate=STEADY_PER_S, seconds=2.0),
)
REMOTING = (
    NamedPart("send, 64 in flight", Part(Way.SINGLE, 64, seconds=4)),
    NamedPart("send, 1 in flight", Part(Way.SINGLE, 1, seconds=4)),
    NamedPart("batches of 960, 2 in flight", Part(Way.BATCHED, 2, 960, seconds=3)),
    NamedPart(f"end to end at {STEADY_PER_S:,}/s", Part(Way.STEADY, rate=STEADY_PER_S, seconds=5)),
    NamedPart("", Part(Way.FILL, seconds=2)),
    NamedPart("pulled by 32", Part(Way.READ, seconds=2)),
    NamedPart("", Part(Way.FILL, seconds=2)),
    NamedPart("pushed", Part(Way.PUSHED, seconds=2)),
)
REMOTING_IDLE = (
    NamedPart("a remoting client that comes to wait", Part(Way.GATHER, clients=IDLE_CLIENTS)),
    NamedPart(f"{IDLE_CLIENTS:,} waiting remoting clients", Part(Way.IDLE, seconds=40)),
)
