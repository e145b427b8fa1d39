"""What `aerobee bench peers` runs: all systems in turn, round by round."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from aerobee.cli.failures import EnvironmentFailure
from peers.fetching import Say, fill_folder
from peers.grpc_go import GrpcGo, OwnEcho
from peers.kafka import Kafka, KafkaByLibrdkafka
from peers.nats import Nats
from peers.own_broker import OwnBroker
from peers.processes import running_load
from peers.redis import Redis
from peers.remoting_idle import IdleAtRocketmqByRemoting, OwnRemotingIdle
from peers.rocketmq import OwnV2, Rocketmq
from peers.rocketmq_idle import IdleAtRocketmq, OwnIdle
from peers.rocketmq_java import OwnByJava, RocketmqByJava
from peers.rocketmq_remoting import OwnByRemoting, RocketmqByRemoting
from peers.system import Fetched, Peer, Stage, System
from peers.table import Comparison

# Their names are also in peer_names.py.
PEERS: Mapping[str, type[Peer]] = {
    "kafka": Kafka,
    "librdkafka": KafkaByLibrdkafka,
    "nats": Nats,
    "redis": Redis,
    "grpc-go": GrpcGo,
    "rocketmq": Rocketmq,
    "rocketmq-java": RocketmqByJava,
    "rocketmq-idle": IdleAtRocketmq,
    "rocketmq-remoting": RocketmqByRemoting,
    "rocketmq-remoting-idle": IdleAtRocketmqByRemoting,
}
OURS_BESIDE: Mapping[str, type[System]] = {
    "grpc-go": OwnEcho,
    "rocketmq": OwnV2,
    "rocketmq-java": OwnByJava,
    "rocketmq-idle": OwnIdle,
    "rocketmq-remoting": OwnByRemoting,
    "rocketmq-remoting-idle": OwnRemotingIdle,
}
"""Our system for the same parts as a peer, if it is not `OwnBroker`."""
TOUCHED_BYTES = 2 << 30
CHUNK_BYTES = 1 << 24


async def compare(
    names: Sequence[str],
    *,
    body_bytes: int,
    rounds: int,
    scale: float,
    fetch: bool,
    say: Say,
    alone: bool = False,
) -> Comparison:
    """Measure Aerobee and the named peers in turn, in each round; `alone`: only Aerobee, with the
    same parts.

    Raises:
        EnvironmentFailure: a peer's programs are missing and `fetch` is not set, or they cannot be
            fetched.
        RuntimeError: a server or a load failed; the message has its output.
    """
    peers: list[Peer] = [] if alone else [PEERS[name]() for name in names]
    await provide(peers, fetch=fetch, say=say)
    ours: list[type[System]] = [OURS_BESIDE.get(name, OwnBroker) for name in names]
    different: dict[type[System], None] = dict.fromkeys(ours or [OwnBroker])
    systems: list[System] = [make() for make in different]
    systems += peers
    titles = list(dict.fromkeys(system.title for system in systems))
    comparison = Comparison(titles)
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-peers-") as name:
        say("touching memory")
        touch_memory(Path(name), int(TOUCHED_BYTES * min(1.0, scale)))
        for number in range(1, rounds + 1):
            for system in systems:
                say(f"round {number} of {rounds}: {system.title}")
                await _measure(system, comparison, Path(name), body_bytes, scale)
    return comparison


async def provide(peers: Sequence[Peer], *, fetch: bool, say: Say) -> None:
    """Fetch what is missing.

    Raises:
        EnvironmentFailure: something is missing and `fetch` is not set, or it cannot be fetched.
    """
    missing: dict[Path, Fetched] = {
        programs.folder: programs
        for peer in peers
        for programs in peer.programs
        if not programs.folder.exists()
    }
    if missing and not fetch:
        sources = "; ".join(programs.source for programs in missing.values())
        raise EnvironmentFailure(
            f"not fetched yet: {sources}. --fetch fetches them into {next(iter(missing)).parent}"
        )
    for folder, programs in missing.items():
        say(f"fetching into {folder}: {programs.source}")
        try:
            await fill_folder(folder, programs.fetch)
        except RuntimeError as error:
            raise EnvironmentFailure(f"cannot fetch {programs.source}: {error}") from error


async def _measure(
    system: System, comparison: Comparison, parent: Path, body_bytes: int, scale: float
) -> None:
    for stage in system.stages:
        with tempfile.TemporaryDirectory(dir=parent) as name:
            folder = Path(name)
            server_core, load_core = _cores(stage)
            async with AsyncExitStack() as running:
                with started_on(server_core):
                    server = await running.enter_async_context(
                        system.running(folder, body_bytes, sync_flush=stage.sync_flush)
                    )
                with started_on(load_core):
                    load = await running.enter_async_context(running_load(server, folder))
                for part in stage.warm_up:
                    # Shorter parts need hardly less warm-up.
                    await load.measure(part.scaled(min(1.0, 2 * scale)))
                for named in stage.parts:
                    answer = await load.measure(named.part.scaled(scale))
                    comparison.add(system.title, named, answer)


def _cores(stage: Stage) -> tuple[int | None, int | None]:
    """The cores of the server and of the load; None: any.

    Raises:
        EnvironmentFailure: there is only one core.
    """
    if not stage.is_on_one_core:
        return None, None
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise EnvironmentFailure("a core for the server and one for its load: here is only one")
    return cores[0], cores[-1]


@contextlib.contextmanager
def started_on(core: int | None) -> Iterator[None]:
    """Processes started meanwhile run on this core, with all their threads; None: on any."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def touch_memory(folder: Path, touched_bytes: int) -> None:
    """Write and free this much memory and page cache.

    A virtual machine gets memory from its host when it first touches it. That is slow, and would
    count against the system measured first.
    """
    memory = bytearray(touched_bytes)
    memory[:: os.sysconf("SC_PAGE_SIZE")] = bytes(
        len(range(0, touched_bytes, os.sysconf("SC_PAGE_SIZE")))
    )
    file = folder / "touched"
    with file.open("wb", buffering=0) as sink:
        for start in range(0, touched_bytes, CHUNK_BYTES):
            sink.write(memoryview(memory)[start : start + CHUNK_BYTES])
    file.unlink()
