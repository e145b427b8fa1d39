"""A server and a client of the core at half load for long, among clients that come and go, cancel,
hang and are killed: memory stays what it is, and no honest call is lost.

    python -m tests.rpc.core.soak --minutes 30
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import uvloop

from aerobee.rpc.core import frames
from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.channel import Channel
from aerobee.rpc.core.status import Status
from tests.support.grpc_core_channel import ECHO, channel_to
from tests.support.grpc_core_echo import echo_process
from tests.support.grpc_core_server import SERVICE
from tests.support.ports import free_port
from tests.support.raw_http2 import call, raw_peer

CALLERS = 64
BODY = b"x" * 1_100
SAMPLE_S_MAX = 60.0
SAMPLES_MIN = 12
SETTLED_PART = 1 / 3
"""Of the run; what memory is then is what it may be in the end."""
GROWTH_MAX = 1.10
GROWTH_BYTES_MAX = 16 << 20
"""As much as those who read nothing make a server hold more at one time than at another."""


class Soak:
    """One run against one server."""

    def __init__(self, address: str, port: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._address = address
        self._port = port
        self._chance = random.Random(1)

    async def full_rate(self, channel: Channel, seconds: float) -> float:
        """Answers a second with nothing else to do."""
        end_s = time.monotonic() + seconds
        answered = 0

        async def caller() -> None:
            nonlocal answered
            while time.monotonic() < end_s:
                await channel.call(ECHO, BODY, timeout_s=60)
                answered += 1

        await asyncio.gather(*[caller() for _ in range(CALLERS)])
        return answered / seconds

    async def steady(self, channel: Channel, per_s: float) -> None:
        """Calls that must all be answered, so many a second in all."""
        while True:
            begun_s = time.monotonic()
            calls = [channel.call(ECHO, BODY, timeout_s=60) for _ in range(CALLERS)]
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                self._count("steady", outcome)
            await asyncio.sleep(max(0.0, begun_s + CALLERS / per_s - time.monotonic()))

    async def cancelling(self, channel: Channel) -> None:
        """Deadlines of some milliseconds, calls and streams that are given up at any moment."""
        while True:
            calls = [
                channel.start(SERVICE + name, b"", timeout_s=self._chance.uniform(0.001, 0.1))
                for name in ("Sleep", "Never", "Echo", "Task") * 20
            ]
            streams = [channel.stream(SERVICE + "Forever", b"") for _ in range(4)]
            await asyncio.sleep(self._chance.uniform(0, 0.05))
            for stream in streams:
                with suppress(CallError):
                    await stream.read()
                stream.cancel()
            for one in self._chance.sample(calls, 40):
                one.cancel()
            for outcome in await asyncio.gather(
                *[one.answer for one in calls], return_exceptions=True
            ):
                self._count("cancelling", outcome)

    async def coming(self) -> None:
        """New channels, a few calls each."""
        while True:
            async with channel_to(self._address) as channel:
                for _ in range(20):
                    outcome = await asyncio.gather(
                        channel.call(SERVICE + "Task", BODY, timeout_s=60), return_exceptions=True
                    )
                    self._count("coming", outcome[0])
            await asyncio.sleep(0.05)

    async def hanging(self) -> None:
        """Peers that ask for much and read nothing, or say nothing at all."""
        while True:
            async with raw_peer(self._port) as peer:
                window = [(frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX)]
                await peer.send(frames.settings_frame(window))
                await peer.send(*[call(one, SERVICE + "Forever") for one in range(1, 41, 2)])
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                await asyncio.sleep(self._chance.uniform(5, 45))
                writer.close()
            self.outcomes["hanging"] += 1

    async def killed(self) -> None:
        """Processes that end in the middle of 300 calls."""
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.grpc_core_visitor", self._address
            )
            try:
                await asyncio.sleep(self._chance.uniform(1, 4))
            finally:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)
                await process.wait()
            self.outcomes["killed"] += 1
            await asyncio.sleep(5)

    def _count(self, kind: str, outcome: object) -> None:
        if isinstance(outcome, CallError):
            self.outcomes[f"{kind} {outcome.status.name}"] += 1
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            self.outcomes[kind] += 1

    @property
    def lost(self) -> int:
        """Calls that an honest client did not end itself."""
        wanted = {f"cancelling {one.name}" for one in (Status.DEADLINE_EXCEEDED, Status.CANCELLED)}
        failed = {kind: count for kind, count in self.outcomes.items() if " " in kind}
        return sum(count for kind, count in failed.items() if kind not in wanted)


def rss_bytes(pid: int | str) -> int:
    """What a process has in memory now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("every process has it")


async def run(minutes: float) -> int:
    """0 if memory did not grow and no call was lost."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    soak = Soak(address, port)
    async with echo_process(port) as server, channel_to(address) as channel:
        full = await soak.full_rate(channel, 3)
        print(f"at most {full:,.0f} calls/s; half of it for {minutes:g} minutes", flush=True)
        async with channel_to(address) as other:
            parts: list[Callable[[], Awaitable[None]]] = [
                lambda: soak.steady(channel, full / 2),
                lambda: soak.cancelling(other),
                soak.coming,
                soak.hanging,
                soak.killed,
            ]
            running = [asyncio.ensure_future(part()) for part in parts]
            samples = await _watched(minutes * 60, server, soak, running)
            for task in running:
                task.cancel()
            await asyncio.wait(running)
    return _verdict(samples, soak)


async def _watched(
    seconds: float,
    server: subprocess.Popen[bytes],
    soak: Soak,
    running: Sequence[asyncio.Future[None]],
) -> list[tuple[int, int]]:
    """Memory of the server and of this process, once a minute or twelve times."""
    every_s = min(SAMPLE_S_MAX, seconds / SAMPLES_MIN)
    begun_s = time.monotonic()
    samples: list[tuple[int, int]] = []
    while time.monotonic() < begun_s + seconds:
        ended, _ = await asyncio.wait(running, timeout=every_s, return_when="FIRST_COMPLETED")
        for task in ended:
            task.result()  # it has failed
        samples.append((rss_bytes(server.pid), rss_bytes("self")))
        passed_s = time.monotonic() - begun_s
        told = ", ".join(f"{kind} {count:,}" for kind, count in sorted(soak.outcomes.items()))
        print(
            f"{passed_s:6.0f} s: server {samples[-1][0] / 2**20:.1f} MiB, "
            f"client {samples[-1][1] / 2**20:.1f} MiB; {told}",
            flush=True,
        )
    return samples


def _verdict(samples: list[tuple[int, int]], soak: Soak) -> int:
    settled = max(1, int(len(samples) * SETTLED_PART))
    failed = 0
    for name, values in zip(("server", "client"), zip(*samples, strict=True), strict=True):
        before, after = max(values[:settled]), min(values[-settled:])
        if after > before * GROWTH_MAX and after > before + GROWTH_BYTES_MAX:
            print(f"the {name} grows: from {before:,} to {after:,} bytes")
            failed = 1
    if soak.lost:
        print(f"{soak.lost} calls were lost")
        failed = 1
    print("failed" if failed else "memory is flat, and no call was lost")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=30)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(arguments.minutes))


if __name__ == "__main__":
    sys.exit(main())
