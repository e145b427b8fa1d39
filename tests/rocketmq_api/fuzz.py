"""Odd requests of Apache's API against a cluster: each is answered, and nothing breaks or grows.

    python -m tests.rocketmq_api.fuzz --requests 100000 --seed 1

Every method, at the nameserver and at a broker. An answer is OK or has the code of a refusal; what
waits for messages may end by its deadline. Nothing may be an error of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2_grpc
from tests.rocketmq_api.nodes import Nodes, addresses
from tests.rocketmq_api.odd_requests import OddRequests, plain_requests
from tests.support.grpcio_client import build_channel
from tests.support.local_up import Up, running
from tests.support.v2_calls import METADATA, sent_message

TOPIC, GROUP = "odd", "odd-readers"
AT_ONCE: Final = 32
CALL_S: Final = 0.4
POLL_S: Final = 6.0
FAILURES_MAX: Final = 5
TRIES_MAX: Final = 5
GROWTH_BYTES_MAX: Final = 64 << 20
"""Of a process between the first quarter of a campaign and its end."""
_STREAMED: Final = ("ReceiveMessage", "PullMessage")
_ENDS: Final = frozenset(
    {
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
_LOST: Final = "Internal error from Core"
"""grpcio's own words; no server sends them."""
_FAULTS: Final = frozenset({v2.INTERNAL_ERROR, v2.INTERNAL_SERVER_ERROR})


class Campaign:
    """Against a running cluster with the topic."""

    def __init__(self, up: Up) -> None:
        self._up = up
        self._channels: list[grpc.aio.Channel] = []
        self._stubs: list[Any] = []
        self.told: list[str] = []
        """What went wrong, with the seed."""
        self.codes: Counter[str] = Counter()

    async def run(self, requests: int, first_seed: int) -> None:
        nodes = Nodes(self._up)
        route = await nodes.nameserver.route(TOPIC)
        for address in (self._up.document()["nameserver"], *addresses(route).values()):
            self._channels.append(build_channel(address))
            self._stubs.append(service_pb2_grpc.MessagingServiceStub(self._channels[-1]))
        await nodes.nameserver.send(sent_message(TOPIC))
        received = await nodes.nameserver.receive(TOPIC, GROUP)
        (handle,) = (each.system_properties.receipt_handle for each in received.messages)
        plain = plain_requests(route.message_queues[0], GROUP, handle)
        names = {"topic": (TOPIC,), "group": (GROUP,), "receipt_handle": (handle,)}
        seeds = iter(range(first_seed, first_seed + requests))
        before: dict[str, int] = {}
        for part in (requests // 4, requests):
            some = itertools.islice(seeds, part)
            users = (self._user(some, plain, names) for _ in range(AT_ONCE))
            await asyncio.gather(*users)
            grown = self._resident()
            before = before or grown
        for name, size in self._resident().items():
            if size > before[name] + GROWTH_BYTES_MAX:
                self.told.append(f"{name} has grown from {before[name]} to {size} bytes")
        await self._still_serves(nodes)
        for channel in self._channels:
            await channel.close()
        await nodes.close()
        self._look_at_logs()

    async def _user(self, seeds: Iterator[int], plain: dict[str, Any], names: Any) -> None:
        methods = sorted(plain)
        for seed in seeds:
            if len(self.told) >= FAILURES_MAX:
                return
            method = methods[seed % len(methods)]
            request = OddRequests(seed, names).request(plain[method]())
            stub = self._stubs[seed // len(methods) % len(self._stubs)]
            try:
                for answer in await self._heard(stub, method, request, seed):
                    self._judge(method, answer, seed)
            except grpc.aio.AioRpcError as error:
                self.codes[f"{method} {error.code().name}"] += 1
                if error.code() not in _ENDS:
                    self.told.append(f"seed {seed}: {method}: {error.code()} {error.details()}")

    async def _heard(self, stub: Any, method: str, request: Message, seed: int) -> list[Message]:
        """As often as grpcio loses the server's status: it does if a call ends while a request is
        being written."""
        for _ in range(TRIES_MAX - 1):
            try:
                return await self._answers(stub, method, request, seed)
            except grpc.aio.AioRpcError as error:
                if error.details() != _LOST:
                    raise
        return await self._answers(stub, method, request, seed)

    async def _answers(self, stub: Any, method: str, request: Message, seed: int) -> list[Message]:
        metadata = dict(METADATA)
        if seed % 50 == 0:
            del metadata["x-mq-client-id"]
        elif seed % 7 == 0:
            metadata["x-mq-client-id"] = f"odd-{seed % 300}"
        given = {"metadata": tuple(metadata.items()), "timeout": CALL_S}
        if method == "Telemetry":

            async def commands() -> AsyncIterator[Message]:
                yield request
                await asyncio.sleep(CALL_S / 8)

            return [each async for each in stub.Telemetry(commands(), **given)]
        if method != "ReceiveMessage":
            call = getattr(stub, method)(request, **given)
            return [each async for each in call] if method in _STREAMED else [await call]
        # With less time a poll is refused; so the client goes earlier than it says.
        given["timeout"] = POLL_S
        answers: list[Message] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CALL_S):
                async for answer in stub.ReceiveMessage(request, **given):
                    answers.append(answer)  # noqa: PERF401  (those in time count)
        return answers

    def _judge(self, method: str, answer: Any, seed: int) -> None:
        if not answer.HasField("status"):
            return
        code = answer.status.code
        self.codes[f"{method} {v2.Code.Name(code)}"] += 1
        if code in _FAULTS or code == v2.CODE_UNSPECIFIED:
            self.told.append(f"seed {seed}: {method}: {answer.status}")

    async def _still_serves(self, nodes: Nodes) -> None:
        for word in (b"one", b"two"):
            sent = await nodes.nameserver.send(sent_message(TOPIC, word))
            if sent.status.code != v2.OK:
                self.told.append(f"afterwards a send is refused: {sent.status}")

    def _resident(self) -> dict[str, int]:
        found = {}
        for name, pid in self._up.document()["pids"].items():
            if pid is not None and name != "etcd":
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                line = next(each for each in lines if each.startswith("VmRSS:"))
                found[name] = int(line.split()[1]) * 1024
        return found

    def _look_at_logs(self) -> None:
        logs = [path for path in self._up.data.rglob("*.log") if path.is_file()]
        texts = [self._up.said(), *(path.read_text(errors="replace") for path in logs)]
        traces = sum(text.count("Traceback") for text in texts)
        if traces:
            self.told.append(f"the logs have {traces} tracebacks")


def fuzz(up: Up, requests: int, first_seed: int = 1) -> Campaign:
    """`up` has the topic."""
    campaign = Campaign(up)
    asyncio.run(campaign.run(requests, first_seed))
    return campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as up:
        up.run("topic", "create", TOPIC, "--queues", "2", "--type", "MIXED")
        campaign = fuzz(up, arguments.requests, arguments.seed)
    for line, count in sorted(campaign.codes.items()):
        print(f"{count:8,} {line}")
    print("\n".join(campaign.told) or f"{arguments.requests:,} requests, nothing broke")
    return 1 if campaign.told else 0


if __name__ == "__main__":
    sys.exit(main())
