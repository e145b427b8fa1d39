"""A program for test_changed_addresses: it has a table of names of its own, in which the programs
of a cluster move to other addresses while clients send and read. It prints how long each move
stopped them.

    unshare --mount --map-root-user python -m tests.faults.moved_names FOLDER
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.ordered_cluster import OrderedCluster, Place, open_traffic, ordered_cluster

NAMELESS_S = 1.5
"""So long a name stands for nothing, as while a pod is replaced."""


class Names:
    """This mount namespace's /etc/hosts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._addresses: dict[str, str] = {}
        self._write()
        subprocess.run(["mount", "--bind", str(file), "/etc/hosts"], check=True)

    def place(self, name: str, host: str) -> Place:
        self._addresses[name] = host
        self._write()
        return Place(name=name, host=host)

    def remove(self, name: str) -> None:
        del self._addresses[name]
        self._write()

    def move(self, place: Place, host: str) -> None:
        self._addresses[place.name] = host
        self._write()
        place.host = host

    def _write(self) -> None:
        lines = ["127.0.0.1 localhost", *(f"{ip} {name}" for name, ip in self._addresses.items())]
        self._file.write_text("\n".join(lines) + "\n")


async def main(folder: Path) -> dict[str, float]:
    names = Names(folder / "hosts")
    stopped_s: dict[str, float] = {}
    async with ordered_cluster(folder, replicas=1) as cluster:
        cluster.etcd = names.place("etcd.test", "127.0.0.2")
        cluster.nameserver = names.place("nameserver.test", "127.0.0.3")
        cluster.brokers[0] = names.place("broker.test", "127.0.0.4")
        for name in ("etcd", "nameserver", "0"):
            await cluster.start(name)
        await cluster.ready("nameserver", "0")
        async with open_traffic(cluster) as traffic:
            await traffic.both_after(time.monotonic(), cluster)
            moves = (("0", 14), ("nameserver", 13), ("etcd", 12), ("0", 24))
            for name, number in moves:
                await move(cluster, names, name, f"127.0.0.{number}")
                began_s = time.monotonic()
                await cluster.ready("nameserver", "0")
                await traffic.both_after(began_s, cluster)
                stopped_s[f"{name} at {number}"] = time.monotonic() - began_s
            await traffic.all_read(cluster)
        assert not traffic.failed, traffic.failed
    return stopped_s


async def move(cluster: OrderedCluster, names: Names, name: str, host: str) -> None:
    """As a pod that is deleted and made again; nothing of it stays at the old address."""
    place = {"etcd": cluster.etcd, "nameserver": cluster.nameserver}.get(name)
    place = cluster.brokers[int(name)] if place is None else place
    await cluster.process(name).stop()
    names.remove(place.name)
    await asyncio.sleep(NAMELESS_S)
    names.move(place, host)
    await cluster.start(name)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
