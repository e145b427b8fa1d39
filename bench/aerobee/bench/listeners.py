"""What each kind of listener costs, and beside an earlier version of the clients if one is given.

    python -m aerobee.bench.listeners [CHECKOUT_OF_AN_EARLIER_VERSION]

Owns: one cluster of this version, its topics, and the processes that read them. Both versions run
the same program and take turns, so that a slow minute of the machine does not count against one of
them. The processor time of the consumer is what a slow machine changes least; shown are the median
of the rounds, and the median of their ratios.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import uvloop

from aerobee.bench import listener_load
from aerobee.bench.cluster import running_cluster
from aerobee.bench.listener_load import SIMPLE, V2
from aerobee.client_core import Message
from aerobee.client_core.admin_client import AdminClient
from aerobee.producer_client import Producer

ROUNDS = 5
BODY = bytes(1_024)
NOW, BEFORE = "now", "before"


class Case(NamedTuple):
    """One kind of consumer on a topic that has so many keys; 0: none."""

    kind: str
    keys: int
    messages: int
    is_new: bool = False
    """An earlier version does not have it."""

    @property
    def topic(self) -> str:
        return f"keys-{self.keys}" if self.keys else "plain"

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.keys:,} keys" if self.keys else self.kind


PLAIN, KEYED, POPPED = 160_000, 60_000, 32_000
CASES = (
    Case("single", 0, PLAIN),
    Case("batch", 0, PLAIN),
    Case("orderly", 0, PLAIN),
    *(Case("orderly", keys, KEYED) for keys in (1, 100, 10_000)),
    *(Case("by key", keys, KEYED, is_new=True) for keys in (1, 100, 10_000)),
    Case(SIMPLE, 0, POPPED, is_new=True),
    Case(V2, 0, POPPED, is_new=True),
)
Figures = dict[str, float]


async def _fill(nameservers: str) -> None:
    sizes = {case.topic: case for case in reversed(CASES)}
    async with AdminClient(nameservers) as admin, Producer(nameservers) as producer:
        for topic, case in sizes.items():
            await admin.topics.create(topic, queues=8)
            for first in range(0, case.messages, 1_000):
                keys = (
                    str(each % case.keys) if case.keys else None
                    for each in range(first, first + 1_000)
                )
                await producer.send_batch([Message(topic, BODY, sharding_key=key) for key in keys])


def _environments(before: Path | None) -> Mapping[str, Mapping[str, str]]:
    """What makes a process load one version or the other."""
    found = {NOW: dict(os.environ)}
    if before is not None:
        roots = [str(path.parent) for path in before.glob("*/aerobee")] + [str(before / "bench")]
        found[BEFORE] = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    return found


async def _measure(
    nameservers: str, broker: str, case: Case, group: str, environment: Mapping[str, str]
) -> Figures:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, listener_load.__file__, nameservers, broker),
        *(case.topic, group, case.kind, str(case.messages)),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    output, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"{case.name} ended with {child.returncode}")
    found: Figures = json.loads(output)
    return found


def _shown(case: Case, found: Mapping[str, list[Figures]]) -> str:
    def of(version: str, what: str) -> list[float]:
        return [each[what] / each["messages"] for each in found[version]]

    line = f"{case.name:20}"
    for version in found:
        rate = 1 / median(of(version, "s"))
        line += f"{version:>8}: {rate:9,.0f}/s {median(of(version, 'cpu_s')) * 1e6:7.2f} us"
        line += f" (broker {median(of(version, 'broker_cpu_s')) * 1e6:.2f} us)"
    if len(found) > 1:
        for what in ("cpu_s", "s"):
            pairs = zip(of(NOW, what), of(BEFORE, what), strict=True)
            line += f"  {what} now/before {median(now / then for now, then in pairs):.3f}"
    return line


async def compare(before: Path | None, cases: Sequence[Case] = CASES, rounds: int = ROUNDS) -> None:
    """Prints a line for each case as soon as it is measured."""
    versions = _environments(before)
    async with running_cluster() as cluster:
        await _fill(cluster.nameserver)
        for place, case in enumerate(cases):
            found: dict[str, list[Figures]] = {
                name: [] for name in versions if name == NOW or not case.is_new
            }
            for number in range(rounds):
                for name in found if number % 2 else reversed(found):
                    group = f"{name}-{place}-{number}"
                    found[name].append(
                        await _measure(
                            cluster.nameserver, cluster.brokers[0], case, group, versions[name]
                        )
                    )
            print(_shown(case, found), flush=True)


if __name__ == "__main__":
    uvloop.run(compare(Path(sys.argv[1]) if sys.argv[1:] else None))
