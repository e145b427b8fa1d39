"""What compiled modules make of inputs that seeds decide, as one line for each input.

Batches and simulated lives run modules that are not in the list yet: before one is added, this says
whether it may be.

python -m tests.compiled.recorded --pure     from the sources, whatever is compiled beside them
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib.abc import PathEntryFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STREAMS = 300
BATCHES = 300
LIVES = {"power_cuts": 25, "pops": 25, "timers": 25, "send_backs": 10}


def prefer_sources() -> None:
    """Imports of this checkout pass over shared libraries."""
    sources = FileFinder.path_hook((SourceFileLoader, SOURCE_SUFFIXES))

    def of_this_checkout(path: str) -> PathEntryFinder:
        place = Path(path)
        if not place.is_relative_to(ROOT) or place.is_relative_to(ROOT / ".venv"):
            raise ImportError(path)
        return sources(path)

    sys.path_hooks.insert(0, of_this_checkout)
    sys.path_importer_cache.clear()


def frames() -> Iterator[str]:
    """What a server and a channel write when they are fed mutated streams."""
    from tests.rpc.core.fuzz import ServerFuzz
    from tests.rpc.core.fuzz_client import ClientFuzz

    async def written(make: Callable[[], ServerFuzz | ClientFuzz]) -> list[str]:
        fuzz = make()
        lines = []
        for seed in range(STREAMS):
            await fuzz.stream(seed)
            lines.append(f"{type(fuzz).__name__} {seed} {fuzz.written:08x} {fuzz.escaped}")
        await fuzz.close()
        return lines

    yield from asyncio.run(written(ServerFuzz))
    yield from asyncio.run(written(ClientFuzz))


def batches() -> Iterator[str]:
    """Batches that are encoded, damaged now and then, checked, stamped and dispatched."""
    from aerobee.store.format.batch import BatchIllegal, BatchLimits, check_batch
    from aerobee.store.format.record import HostAddress, encode_batch
    from aerobee.store.format.tags import TagsCodes

    hosts = HostAddress(bytes(4), 5000), HostAddress(bytes(16), 5000)
    for seed in range(BATCHES):
        chance = random.Random(seed)
        count = chance.choice([1, 2, 5, 40, 200])
        born, stored = chance.choice(hosts), chance.choice(hosts)
        records, sizes = encode_batch(
            topic=b"TopicTest",
            bodies=[chance.randbytes(chance.randrange(1, 200)) for _ in range(count)],
            properties=[
                b"TAGS\x01T%d\x02KEYS\x01a b%d\x02" % (chance.randrange(3), chance.randrange(9))
                for _ in range(count)
            ],
            born_timestamp_ms=1_700_000_000_000 + seed,
            born_host=born,
            sys_flags=[chance.choice([0, 0, 4, 8, 12]) for _ in range(count)],
            store_host_ipv6=stored.is_ipv6,
        )
        if chance.random() < 0.5:
            damaged = bytearray(records)
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            records = bytes(damaged)
        try:
            batch = check_batch(
                records,
                sizes,
                topic="TopicTest",
                limits=BatchLimits(),
                store_host_ipv6=stored.is_ipv6,
                tags=TagsCodes(),
            )
        except BatchIllegal as refused:
            yield f"batch {seed} {refused.kind} {refused.index} {refused}"
            continue
        batch.stamp(
            queue_id=chance.randrange(8),
            base_queue_offset=chance.randrange(1 << 40),
            base_physical_offset=chance.randrange(1 << 40),
            store_timestamp_ms=1_700_000_000_500 + seed,
            store_host=stored,
        )
        entries = zlib.crc32(batch.dispatch_entries(1 << 33))
        yield f"batch {seed} {zlib.crc32(batch.buffer):08x} {entries:08x} {batch.largest}"


def lives() -> Iterator[str]:
    """All that happens in simulated worlds: stores, POP, timers, messages that failed."""
    from tests.simulation.campaign import campaign_of, silence

    silence()
    for world, count in LIVES.items():
        campaign = campaign_of(world)
        for seed in range(count):
            told: list[str] = []
            campaign.run_seed(seed, variant=campaign.true_variant(), trace=told.append)
            yield f"{world} {seed} {len(told)} {zlib.crc32(chr(10).join(told).encode()):08x}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pure", action="store_true")
    if parser.parse_args().pure:
        prefer_sources()
    from aerobee.rpc.core import frames as module

    print(module.__file__)
    for part in (frames, batches, lives):
        for line in part():
            print(line)


if __name__ == "__main__":
    main()
