"""A process that attacks all ports of a cluster, some of them at once, until it is told to end.

    python -m tests.port_fuzz.attacker FILE SEED

FILE is the JSON of `caller.Orders`. A line on standard input ends it; then it prints what it sent,
by attack.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import ssl
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.port_fuzz.attacks import ATTACKS, Target, http_noise
from tests.port_fuzz.caller import NICE, Orders
from tests.port_fuzz.doors import Ports, path_of

AT_ONCE: Final = 6
PAUSE_S: Final = 0.02
"""Between two attacks of one attacker: each has a new connection, whose TLS is dear to itself."""


class Attacker:
    def __init__(self, orders: Orders, ports: Ports) -> None:
        self.sent: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._ports = ports
        self._http: ssl.SSLContext | None = None
        self._h2: ssl.SSLContext | None = None
        if orders.ca:
            self._http, self._h2 = (ssl.create_default_context(cafile=orders.ca) for _ in range(2))
            self._h2.set_alpn_protocols(["h2"])

    async def run(self, seed: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(AT_ONCE):
                tasks.create_task(self._attack(random.Random(seed + number)))

    async def _attack(self, chance: random.Random) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                if self._ports.metrics and chance.random() < 0.1:
                    address = chance.choice(self._ports.metrics)
                    self._note("http_noise", await http_noise(address, chance, self._http))
                else:
                    address = chance.choice(self._ports.grpc)
                    paths = [path_of(method) for method in self._ports.methods(address)]
                    attack = chance.choice(ATTACKS)
                    sent = await attack(Target(address, paths, self._h2), chance)
                    self._note(getattr(attack, "__name__", "attack"), sent)
            await asyncio.sleep(PAUSE_S)

    def _note(self, name: str, sent: int) -> None:
        self.sent[name] += sent
        self.done[name] += 1


async def _until_told(orders: Orders, seed: int) -> Attacker:
    attacker = Attacker(orders, Ports.of(orders.ports))
    running = asyncio.create_task(attacker.run(seed))
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    else:
        await running
    return attacker


def main() -> None:
    orders = Orders.read(Path(sys.argv[1]))
    os.nice(NICE)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # of connections that are gone
    attacker = asyncio.run(_until_told(orders, int(sys.argv[2])))
    print(json.dumps({"sent": attacker.sent, "done": attacker.done, "cpu_s": time.process_time()}))


if __name__ == "__main__":
    main()
