"""One call as no client makes it: a seed says where it goes, who makes it, and all its bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from aerobee.runtime.varint import varint
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.faults.serving import batch_of
from tests.port_fuzz.doors import Callers, Kind, Metadata, Ports, client_metadata, path_of
from tests.rocketmq_api.odd_requests import OddRequests, plain_requests
from tests.support.costly_requests import Place, delimited, places
from tests.support.plain_requests import plain_request

TOPICS: Final = ("odd", "odd-2")
GROUPS: Final = ("odd-readers", "odd-readers-2")
USERS: Final = ("odd-user", "odd-user-2")
FRAMES_MAX: Final = 40
COSTLY_SHARE: Final = 0.004
COSTLY_BYTES: Final = (1 << 10, 60_000, 70_000, 1 << 20)
DEEP: Final = 5_000
_NUMBERS: Final = {
    "max_messages": 8, "max_bytes": 4_096, "wait_ms": 50, "credit_bytes": 65_536, "bytes": 65_536,
    "session_timeout_ms": 10_000, "limit": 10, "queue_count": 2, "queues_per_group": 2,
    "range_bytes": 1 << 20, "max_entries": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OddCall:
    address: str
    method: MethodDescriptor
    path: str
    kind: Kind
    metadata: Metadata
    messages: list[bytes]
    timeout_s: float


class OddCalls:
    """Against one cluster. What it names is there, and is nobody else's."""

    def __init__(
        self,
        ports: Ports,
        callers: Callers,
        *,
        cluster: str,
        route: v2.MessageQueue,
        handle: str,
        spares_cluster: bool = True,
    ) -> None:
        """`spares_cluster`: no call changes who is master."""
        self._ports, self._callers = ports, callers
        self._kinds = callers.kinds()
        self._spares_cluster = spares_cluster
        self._texts = {
            "topic": TOPICS[0], "group": GROUPS[0], "user": USERS[0], "cluster": cluster,
            "broker_name": "broker-a", "resource": f"Topic:{TOPICS[0]}", "actions": "Pub,Sub",
            "decision": "Allow", "recall_handle": handle, "receipt_handle": handle,
            "service": "readiness", "client_id": "odd-client", "instance": "f" * 16,
        }  # fmt: skip
        self._names: Mapping[str, tuple[str, ...]] = {
            **{name: (text,) for name, text in self._texts.items()},
            "topic": TOPICS, "group": GROUPS, "user": USERS, "name": (*TOPICS, *GROUPS, *USERS),
            "cluster": (cluster, "elsewhere"), "broker_name": ("broker-a", "broker-b", "broker-z"),
        }  # fmt: skip
        self._v2 = plain_requests(route, GROUPS[0], handle)

    def call(self, seed: int) -> OddCall:
        chance = random.Random(seed)
        address = chance.choice(self._ports.grpc[: -len(self._ports.health) or None])
        if self._ports.health and chance.random() < 0.03:
            address = chance.choice(self._ports.health)
        method = chance.choice(self._ports.methods(address))
        path = path_of(method)
        kind = chance.choice(self._kinds)
        if self._spares_cluster and self._callers.may_upheave(kind, path):
            messages = [self._noise(chance)]  # of which nothing can be read
        else:
            messages = self._messages(method, path, chance)
        metadata = client_metadata(path, chance) + self._callers.metadata(kind, path, chance)
        timeout_s = 6.0 if method.name == "ReceiveMessage" else 0.5
        return OddCall(address, method, path, kind, metadata, messages, timeout_s)

    def _noise(self, chance: random.Random) -> bytes:
        return b"\xff" * 11 + chance.randbytes(chance.randrange(60))

    def _messages(self, method: MethodDescriptor, path: str, chance: random.Random) -> list[bytes]:
        count = chance.randrange(1, FRAMES_MAX + 1) if method.client_streaming else 1
        plain = self._plain(method)
        made: list[bytes] = []
        for at in range(count):
            if at == 0 and count > 1 and chance.random() < 0.6:
                made.append(plain.SerializeToString())  # streams go on only after a good beginning
            else:
                made.append(self._message(method, plain, chance))
        return made

    def _message(self, method: MethodDescriptor, plain: Message, chance: random.Random) -> bytes:
        luck = chance.random()
        if luck < COSTLY_SHARE and (found := _places(method)):
            return chance.choice(chance.choice(found))
        if luck < 0.08:
            return chance.randbytes(chance.randrange(200))
        if luck < 0.45:
            request = plain
        else:
            request = OddRequests(chance.getrandbits(40), self._names).request(plain)
        content = request.SerializeToString()
        return damaged(content, chance) if luck < 0.6 else content

    def _plain(self, method: MethodDescriptor) -> Message:
        """What clients send."""
        if method.full_name.startswith("apache.") and method.name in self._v2:
            return self._v2[method.name]()
        made = plain_request(method.input_type, self._texts, otherwise=TOPICS[0], numbers=_NUMBERS)
        if method.name == "SendStream":
            made.CopyFrom(type(made)(batches=[batch_of(TOPICS[0], 0, b"odd")]))
        return made


@cache
def _places(method: MethodDescriptor) -> list[list[bytes]]:
    """Requests that are nothing but one long field, by field."""

    def made(place: Place) -> list[bytes]:
        return [one for size in COSTLY_BYTES for one in place.far_above(size)]

    return [made(place) for place in places([method])]


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The same, but for some bytes."""
    return chance.choice(_DAMAGES)(content, chance)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _flipped(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return b"\xff"
    part = bytearray(content)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(part))
        part[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, part[at] ^ 1 << chance.randrange(8)))
    return bytes(part)


def _twice(content: bytes, chance: random.Random) -> bytes:
    return content * chance.randrange(2, 5)


def _with_unknown(content: bytes, chance: random.Random) -> bytes:
    """Fields that nobody knows, and known ones with the type of others."""
    number = chance.choice((*range(1, 16), 1_000, 536_870_911))
    wrong = varint(number << 3 | chance.choice((0, 1, 5, 2, 3, 4, 6, 7)))
    return content + wrong + chance.choice((b"", b"\x01", bytes(8), delimited(1, b"x")[1:]))


def _without_utf8(content: bytes, chance: random.Random) -> bytes:
    return content + delimited(chance.randrange(1, 12), b"\xc3\x28\xff\xfe\x00")


def _deep(content: bytes, chance: random.Random) -> bytes:
    """Messages in messages, as many as a parser may be made to follow; or groups, likewise."""
    if chance.random() < 0.5:
        return content + b"\x0b" * DEEP
    number, inner = chance.randrange(1, 8), b""
    for _ in range(chance.choice((10, 120, 300))):
        inner = delimited(number, inner)
    return content + inner


_DAMAGES: Final[tuple[Callable[[bytes, random.Random], bytes], ...]] = (
    _cut, _flipped, _flipped, _twice, _with_unknown, _without_utf8, _deep,
)  # fmt: skip


def output_of(method: MethodDescriptor) -> Any:
    return GetMessageClass(method.output_type)
