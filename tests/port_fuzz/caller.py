"""A process that makes odd calls, many at once, and tells what came of them.

    python -m tests.port_fuzz.caller FILE

The file is JSON, see `Orders`; it ends by printing a `Tally`, as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.channel import Channel
from aerobee.rpc.core.limits import Limit
from aerobee.rpc.core.status import Status
from aerobee.rpc.core.tls import TlsFiles, client_context
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.port_fuzz.doors import Callers, Ports
from tests.port_fuzz.odd_calls import OddCall, OddCalls, output_of

AT_ONCE: Final = 32
NICE: Final = 10
"""Callers and attackers share their machine with what they attack, as real ones would not."""
ANSWERS_MAX: Final = 20
READ_S: Final = 0.05
"""How long an answer of a stream may take before the caller goes."""
FAULTS_MAX: Final = 20
FAULTS: Final = frozenset({Status.INTERNAL, Status.UNKNOWN, Status.DATA_LOSS})
V2_FAULTS: Final = frozenset({v2.INTERNAL_ERROR})


@dataclass(frozen=True)
class Orders:
    """What one process is to do."""

    ports: dict[str, Any]
    first_seed: int
    step: int
    """Seeds are `first_seed`, and each so many after it, so that processes share them out."""
    requests: int
    """Messages; a stream has several."""
    cluster: str
    queue: str
    """A MessageQueue of the topic, serialized, in hexadecimal."""
    handle: str
    secrets: str = ""
    """The folder of what callers sign with; empty: no access control."""
    ca: str = ""
    spares_cluster: bool = True

    @classmethod
    def read(cls, path: Path) -> Orders:
        return cls(**json.loads(path.read_text()))


@dataclass
class Tally:
    """What a process did, and what it was answered."""

    messages: int = 0
    calls: int = 0
    cpu_s: float = 0.0
    by_kind: Counter[str] = field(default_factory=Counter)
    by_method: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.messages += other.messages
        self.calls += other.calls
        self.cpu_s += other.cpu_s
        self.by_kind.update(other.by_kind)
        self.by_method.update(other.by_method)
        self.answers.update(other.answers)
        self.faults += other.faults

    @classmethod
    def read(cls, text: str) -> Tally:
        found = json.loads(text)
        for name in ("by_kind", "by_method", "answers"):
            found[name] = Counter(found[name])
        return cls(**found)


class Unheard:
    """What this side's limits meet is of no interest."""

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None: ...


class Caller:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._ports = ports = Ports.of(orders.ports)
        self._calls = OddCalls(
            ports,
            Callers(Path(orders.secrets) if orders.secrets else None),
            cluster=orders.cluster,
            route=v2.MessageQueue.FromString(bytes.fromhex(orders.queue)),
            handle=orders.handle,
            spares_cluster=orders.spares_cluster,
        )
        self.tally = Tally()
        self._channels: dict[str, Channel] = {}

    async def run(self) -> Tally:
        files = TlsFiles(authorities=Path(self._orders.ca)) if self._orders.ca else None
        for address in self._ports.grpc:
            self._channels[address] = Channel(
                address,
                now=time.monotonic,
                random=random.Random(0),
                observer=Unheard(),
                tls=client_context(files) if files else None,
            )
        seeds = self._seeds()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._user(seeds))
        self.tally.cpu_s = time.process_time()
        for channel in self._channels.values():
            await channel.close()
        return self.tally

    def _seeds(self) -> Iterator[int]:
        seed = self._orders.first_seed
        while self.tally.messages < self._orders.requests:
            yield seed
            seed += self._orders.step

    async def _user(self, seeds: Iterator[int]) -> None:
        for seed in seeds:
            call = self._calls.call(seed)
            tally = self.tally
            tally.calls += 1
            tally.messages += len(call.messages)
            tally.by_kind[call.kind] += len(call.messages)
            tally.by_method[call.path.rpartition(".")[2]] += len(call.messages)
            try:
                answers = await self._answers(call)
            except CallError as error:
                tally.answers[error.status.name] += 1
                if error.status in FAULTS and error.is_answer and not _is_named(error):
                    self._fault(seed, call, f"{error.status.name} {error.message}")
            else:
                tally.answers["OK"] += 1
                self._look_at(seed, call, answers)

    async def _answers(self, call: OddCall) -> list[bytes]:
        channel = self._channels[call.address]
        given: dict[str, Any] = {"timeout_s": call.timeout_s, "metadata": call.metadata}
        method = call.method
        if not method.client_streaming and not method.server_streaming:
            return [await channel.call(call.path, call.messages[0], **given)]
        first = None if method.client_streaming else call.messages[0]
        stream = channel.stream(call.path, first, **given)
        answers: list[bytes] = []
        try:
            if method.client_streaming:
                for message in call.messages:
                    await stream.write(message)
                if len(call.messages) % 2:
                    stream.done_writing()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(READ_S):
                    while len(answers) < ANSWERS_MAX:
                        answer = await stream.read()
                        if answer is None:
                            break
                        answers.append(answer)
        finally:
            stream.cancel()
        return answers

    def _look_at(self, seed: int, call: OddCall, answers: list[bytes]) -> None:
        if not call.path.startswith("/apache.") or not answers:
            return
        try:
            answer: Any = output_of(call.method).FromString(answers[0])
        except DecodeError:
            self._fault(seed, call, "an answer that cannot be read")
            return
        if answer.HasField("status"):
            self.tally.answers[v2.Code.Name(answer.status.code)] += 1
            if answer.status.code in V2_FAULTS:
                self._fault(seed, call, str(answer.status))

    def _fault(self, seed: int, call: OddCall, what: str) -> None:
        if len(self.tally.faults) < FAULTS_MAX:
            self.tally.faults.append(f"seed {seed}: {call.path} {call.kind}: {what}")


def _is_named(error: CallError) -> bool:
    """A typed error of the product, which says what to do."""
    return any(key == "aerobee-code" for key, _ in error.trailers)


def main() -> None:
    orders = Orders.read(Path(sys.argv[1]))
    os.nice(NICE)
    print(json.dumps(vars(asyncio.run(_campaign(orders)))))


async def _campaign(orders: Orders) -> Tally:
    return await Caller(orders).run()


if __name__ == "__main__":
    main()
