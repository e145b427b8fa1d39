"""Faults in a cluster, caused by a test.

All work with a `VirtualCluster`; each says whether it also works with a `RealCluster`.

    async with VirtualCluster(replicas=2) as cluster:
        faults.kill(cluster, await cluster.master())

    with faults.full_disk(cluster):
        ...
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from aerobee.testing.memory_network import CLIENT
from aerobee.testing.node_disk import DiskFaults
from aerobee.testing.power_failure import draw_fate
from aerobee.testing.process_node import BrokerProcess
from aerobee.testing.real_cluster import RealCluster
from aerobee.testing.simulated_disk import SimulatedDisk
from aerobee.testing.virtual_cluster import VirtualCluster

Cluster = VirtualCluster | RealCluster

NAMESERVER = "nameserver"
__all__ = [
    "CLIENT",
    "NAMESERVER",
    "NotPossible",
    "cut_network",
    "cut_power",
    "full_disk",
    "hung_disk",
    "kill",
    "lost_registry",
]


class NotPossible(RuntimeError):
    """This kind of cluster cannot have the fault; the text says which one can."""


def kill(cluster: Cluster, broker: str = "broker-a") -> None:
    """End a broker as SIGKILL does; `start_broker` starts it again. In any cluster.

    What it had written remains, acknowledged or not: the system has it.
    """
    if isinstance(cluster, VirtualCluster):
        cluster.broker(broker).kill_now()
    else:
        cluster.thread.call(cluster.broker(broker).kill())


def cut_power(cluster: VirtualCluster, broker: str = "broker-a", *, seed: int = 0) -> None:
    """End a broker as a power failure does: of anything not flushed its disk has some or nothing.

    `seed` decides which part. Only in a VirtualCluster.
    """
    if not isinstance(cluster, VirtualCluster):
        raise NotPossible("only a VirtualCluster has disks that lose power")
    node = cluster.broker(broker)
    node.kill_now()
    disk = node.disk
    assert isinstance(disk, SimulatedDisk)
    promised, end = disk.sequence_range
    fate = draw_fate(random.Random(seed), promised=promised, end=end, has_journal=True)
    node.disk = disk.after_power_failure(fate)


@contextmanager
def hung_disk(cluster: Cluster, broker: str = "broker-a") -> Iterator[None]:
    """Within the block nothing becomes durable: flushes wait, without an error. Not with brokers
    that are processes."""
    node = cluster.broker(broker)
    _faults(cluster, broker).hang()
    try:
        yield
    finally:
        node.answer_disk()


@contextmanager
def full_disk(cluster: Cluster, broker: str = "broker-a") -> Iterator[None]:
    """Within the block the disk has no room. Not with brokers that are processes.

    A broker checks its disk only every few seconds: let them pass before it refuses messages.
    """
    faults = _faults(cluster, broker)
    faults.is_full = True
    try:
        yield
    finally:
        faults.is_full = False


@contextmanager
def cut_network(cluster: VirtualCluster, one: str, other: str = CLIENT) -> Iterator[None]:
    """Within the block nothing gets from one place to the other, in either direction, and nobody is
    notified.

    Places are brokers, `NAMESERVER` and `CLIENT`, which is everything outside the cluster. Only in
    a VirtualCluster.
    """
    if not isinstance(cluster, VirtualCluster):
        raise NotPossible("only a VirtualCluster has a network that can be cut")
    for place in (one, other):
        if place not in (CLIENT, NAMESERVER):
            cluster.broker(place)
    cluster.network.cut(one, other)
    try:
        yield
    finally:
        cluster.network.heal(one, other)


@contextmanager
def lost_registry(cluster: VirtualCluster) -> Iterator[None]:
    """Within the block nameservers cannot reach the replacement of etcd. Only in a
    VirtualCluster."""
    if not isinstance(cluster, VirtualCluster):
        raise NotPossible("only in a VirtualCluster can the registry be away")
    cluster.nodes.registry.go_away()
    try:
        yield
    finally:
        cluster.nodes.registry.come_back()


def _faults(cluster: Cluster, broker: str) -> DiskFaults:
    node = cluster.broker(broker)
    if isinstance(node, BrokerProcess):
        raise NotPossible(
            "the disk of a process is the system's: use a VirtualCluster, or a RealCluster "
            "without processes"
        )
    return node.faults
