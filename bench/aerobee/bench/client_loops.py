"""What uvloop gains for a client, compared with asyncio's own loop in the same run.

    python -m aerobee.bench.client_loops

Owns: a cluster, and a sequence of processes that send to it and read from it, each on the loop
named by its argument. The loops take turns, so that a slow minute of the machine does not count
against one of them; the median of three rounds is shown.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import sys

import uvloop

from aerobee.bench.cluster import running_cluster
from aerobee.bench.consume import pull_from_start
from aerobee.bench.produce import produce_batches, produce_single

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
ROUNDS = 3
BODY_BYTES = 1_024
BATCHED, IN_FLIGHT_64, IN_FLIGHT_1 = 60_000, 12_000, 1_000

Figures = dict[str, float]


async def _work(nameserver: str, broker: str, topic: str) -> Figures:
    """Messages per second, the median of a send, and this process's processor seconds."""
    one = await produce_single(
        nameserver, broker, topic=topic, body_bytes=BODY_BYTES, messages=IN_FLIGHT_1, in_flight=1
    )
    many = await produce_single(
        nameserver, broker, topic=topic, body_bytes=BODY_BYTES, messages=IN_FLIGHT_64, in_flight=64
    )
    batches = await produce_batches(
        nameserver, broker, topic=topic, body_bytes=BODY_BYTES, messages=BATCHED
    )
    pulled = await pull_from_start(
        nameserver, broker, topic=topic, group=f"{topic}-group", messages=BATCHED
    )
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "send, 1 in flight, us": one.latencies.p50_us,
        "send, 64 in flight, /s": many.throughput.messages_per_s,
        "send in batches, /s": batches.throughput.messages_per_s,
        "pull, /s": pulled.messages_per_s,
        "processor, s": used.ru_utime + used.ru_stime,
    }


async def _compare() -> None:
    found: dict[str, list[Figures]] = {name: [] for name in LOOPS}
    async with running_cluster() as cluster:
        for number in range(ROUNDS):
            for name in LOOPS if number % 2 else reversed(LOOPS):
                child = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "aerobee.bench.client_loops", name),
                    *(cluster.nameserver, cluster.brokers[0], f"{name}-{number}"),
                    stdout=asyncio.subprocess.PIPE,
                )
                output, _ = await child.communicate()
                found[name].append(json.loads(output))
    print(f"{'':28}" + "".join(f"{name:>12}" for name in found))
    for what in found["uvloop"][0]:
        medians = [statistics.median(each[what] for each in rounds) for rounds in found.values()]
        print(f"{what:28}" + "".join(f"{median:12,.0f}" for median in medians))


if __name__ == "__main__":
    if sys.argv[1:]:
        with asyncio.Runner(loop_factory=LOOPS[sys.argv[1]]) as runner:
            print(json.dumps(runner.run(_work(*sys.argv[2:]))))
    else:
        uvloop.run(_compare())
