"""A server to measure and its load: two processes, ended with the measurement."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aerobee.bench.measure import Stopwatch
from peers.parts import Answer, Part, Way

START_TIMEOUT_S = 180.0
"""A JVM on one core of a busy machine needs more than a minute."""
STOP_TIMEOUT_S = 20.0
PART_TIMEOUT_S = 300.0
OUTPUT_BYTES = 2_000
"""How much of the end of a failed process's output an error quotes."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its process, and the load for it."""

    process_id: int
    load: tuple[str, ...]
    memory: Callable[[int], Awaitable[int]] | None = None
    """The memory of a process in bytes, if its anonymous pages do not show it."""

    async def held_bytes(self) -> int:
        if self.memory is not None:
            return await self.memory(self.process_id)
        return anonymous_bytes(self.process_id)


def free_port() -> int:
    """A port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def listening(
    *argv: str | Path, port: int, folder: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A server that accepts connections, stopped at the end.

    Raises:
        RuntimeError: it does not accept any; the message has its output.
    """
    with _output(folder / "server.log") as sink:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=folder
        )
    try:
        watch = Stopwatch()
        while not await _accepts(port):
            if process.returncode is not None or watch.elapsed_s() > START_TIMEOUT_S:
                raise RuntimeError(f"{argv[0]} did not start: {_last(folder / 'server.log')}")
            await asyncio.sleep(0.05)
        yield process
    finally:
        await ended(process)


async def ended(process: asyncio.subprocess.Process) -> None:
    """Ask it to end, and kill it if it does not."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


class Load:
    """A running load, asked for one part after another."""

    def __init__(self, process: asyncio.subprocess.Process, server: Server, log: Path) -> None:
        self._process = process
        self._server = server
        self._log = log

    async def measure(self, part: Part) -> Answer:
        """Takes `part.seconds`, its warm-up, and the time of the last answers.

        Raises:
            RuntimeError: the load failed; the message has its output.
        """
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None, "it was asked for"
        assert answers is not None, "it was asked for"
        counts_memory = part.way is Way.GATHER
        before_bytes = await self._server.held_bytes() if counts_memory else 0
        before_s = processor_s(self._server.process_id)
        asked.write(part.as_json().encode() + b"\n")
        try:
            async with asyncio.timeout(PART_TIMEOUT_S + 2 * part.seconds):
                line = await answers.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise RuntimeError(f"{part}: {self._server.load[0]} gave no answer: {_last(self._log)}")
        used_s = processor_s(self._server.process_id) - before_s
        answer = Answer.from_json(line)
        grown = await self._server.held_bytes() - before_bytes if counts_memory else 0
        return replace(
            answer, server_us=used_s / max(1, answer.sent) * 1e6, server_bytes=max(0, grown)
        )


@contextlib.asynccontextmanager
async def running_load(server: Server, folder: Path) -> AsyncIterator[Load]:
    """The load of a server; it ends with its standard input."""
    log = folder / "load.log"
    with _output(log) as sink:
        process = await asyncio.create_subprocess_exec(
            *server.load,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=sink,
            cwd=folder,
        )
    try:
        yield Load(process, server, log)
    finally:
        await ended(process)


def processor_s(process_id: int) -> float:
    """User and system time of a process with all its threads, in steps of 10 ms."""
    stat = Path(f"/proc/{process_id}/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_bytes(process_id: int) -> int:
    """A process's memory without the files that it maps."""
    status = Path(f"/proc/{process_id}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


async def said_by(argv: Sequence[str | Path], *, folder: Path) -> str:
    """What a command prints.

    Raises:
        RuntimeError: it failed; the message has its output.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
    )
    try:
        output, _ = await process.communicate()
    finally:
        await ended(process)
    text = output.decode(errors="replace")
    if process.returncode:
        raise RuntimeError(f"{argv[0]} failed: {text[-OUTPUT_BYTES:]}")
    return text


@contextlib.contextmanager
def _output(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def _last(log: Path) -> str:
    return log.read_text(errors="replace")[-OUTPUT_BYTES:].strip() or "it said nothing"
