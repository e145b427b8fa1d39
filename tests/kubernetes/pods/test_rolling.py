"""A broker group of the overlay `ha` in containers, beside etcd of three and two nameservers:
started in the worst order, restarted and upgraded pod by pod under load, and killed. Each start
gives a pod an address that nobody had before. Nothing is lost, and nobody keeps an address that is
gone.

All tests share one cluster, and one load whose whole history is judged after each of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.failover.checker import judge
from tests.failover.log_files import log_bytes, stored_messages
from tests.failover.world import TOPIC
from tests.kubernetes.pods.cluster import TOOLS, PodCluster, open_cluster
from tests.kubernetes.pods.crowd import Crowd, open_crowd
from tests.kubernetes.pods.group import PodGroup
from tests.kubernetes.pods.kubelet import Pod, memory_bytes
from tests.kubernetes.pods.load_client import CHECKOUT, Load, open_load
from tests.kubernetes.pods.local_manifests import local_manifests
from tests.kubernetes.pods.outcome import has_failed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.kubernetes,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]

ETCD, NAMESERVER, BROKER = "aerobee-etcd", "aerobee-nameserver", "aerobee-broker-a"
REPLICAS = range(3)
MIN_READY_S = 1.0
PAUSE_S_MAX = 2.0
"""Several times what it takes: here three replicas, three members of etcd, two nameservers and the
clients share one machine, on which work takes up to eight times as long as it needs."""
PAUSE_OF_A_CROWD_S_MAX = PAUSE_S_MAX / 8
"""For each time that work takes longer than that, since others run here, too."""
STORE = "store"
"""Of a broker's folder, below its claim."""


class Scene:
    """A running cluster under load, seen from outside."""

    def __init__(self, cluster: PodCluster, group: PodGroup, load: Load, crowd: Crowd) -> None:
        self.cluster = cluster
        self.group = group
        self.load = load
        self.crowd = crowd

    @property
    def brokers(self) -> list[Pod]:
        return self.cluster.of(BROKER)

    async def master(self) -> Pod:
        return self.brokers[await self.group.healthy()]

    @asynccontextmanager
    async def judged(self) -> AsyncIterator[None]:
        """Messages flow inside; at the end no send has failed and the verdict is clean."""
        await self.load.resume()
        await self.load.acknowledged_after(time.monotonic())
        yield
        await self.group.healthy()
        await self.load.acknowledged_after(time.monotonic())
        await self.load.pause()
        await self._judge()
        assert self.cluster.must_restart() == {}

    async def replace_brokers(self, image: str | None = None) -> None:
        """All of them, one after the other, from the highest ordinal down."""
        for pod in reversed(self.brokers):
            role = "master" if await self.master() is pod else "slave"
            address = pod.address
            began_s = time.monotonic()
            stopped, ready_s = await self.cluster.replace(pod, image=image, min_ready_s=MIN_READY_S)
            pause_s, crowd = await self.load.gap_s(began_s), self.crowd.factor(began_s)
            print(
                f"{pod.name}, {role}: writes paused for {pause_s:.2f} s; drained in "
                f"{stopped.hook_s:.1f} s, stopped in {stopped.elapsed_s - stopped.hook_s:.1f} s, "
                f"start to ready {ready_s:.1f} s; work took {crowd:.1f} times as long"
            )
            assert stopped.exit_code == 0
            assert pod.address != address
            assert pause_s < max(PAUSE_S_MAX, PAUSE_OF_A_CROWD_S_MAX * crowd)

    async def _judge(self) -> None:
        master_id = await self.group.healthy()
        stored = stored_messages(self._log(master_id, await self.group.equal_ends()), TOPIC)
        await self.load.caught_up({one.place for one in stored})
        # With the offsets that the consumers committed meanwhile.
        end = await self.group.equal_ends()
        logs = {f"replica {one}": self._log(one, end) for one in REPLICAS}
        history = await self.load.history()
        verdict = judge(history, stored, logs)
        print(
            f"{len(history.acknowledged)} acknowledged, {len(stored)} stored, "
            f"{len(history.delivered)} delivered, {len(history.failed)} sends failed: {verdict}"
        )
        assert not verdict.violations
        assert not history.failed, history.failed[:5]

    async def account(self) -> str:
        """What everybody says, for a person who looks for the cause."""
        accounts = (self.group.account(), self.load.account(), self.cluster.account())
        return "\n".join([await one for one in accounts])

    def _log(self, broker_id: int, end: int) -> bytes:
        return log_bytes(self.brokers[broker_id].folder("data") / STORE, end)


async def start_brokers_first_and_etcd_last(cluster: PodCluster) -> None:
    """Each waits for what it needs, and nobody is restarted meanwhile."""
    await cluster.start(BROKER, TOOLS)
    await asyncio.sleep(4)
    await cluster.start(NAMESERVER)
    await asyncio.sleep(2)
    assert not any(pod.is_ready for owner in (BROKER, NAMESERVER) for pod in cluster.of(owner))
    began_s = time.monotonic()
    await cluster.start(ETCD)
    await cluster.ready(ETCD, NAMESERVER, BROKER, TOOLS)
    print(
        f"\nall pods are ready {time.monotonic() - began_s:.1f} s after etcd, the last, is started"
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    root = tmp_path_factory.mktemp("ha")
    manifests = local_manifests(root, "ha")
    mounts = {f"{CHECKOUT}/tests": Path(__file__).resolve().parent.parent.parent}
    owners = (ETCD, NAMESERVER, BROKER, TOOLS)
    async with open_cluster(manifests, *owners, mounts=mounts) as cluster:
        await start_brokers_first_and_etcd_last(cluster)
        group = PodGroup(
            lambda: [f"{pod.address}:8081" for pod in cluster.of(NAMESERVER) if pod.is_running],
            lambda broker_id: f"{cluster.of(BROKER)[broker_id].address}:10911",
            REPLICAS,
        )
        try:
            await group.healthy()
            async with (
                open_load(cluster.tools, len(REPLICAS)) as load,
                open_crowd() as crowd,
            ):
                yield Scene(cluster, group, load, crowd)
        finally:
            await group.close()


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def evidence(scene: Scene, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """As it is at the moment when a test fails."""
    yield
    if has_failed(request.node):
        print(await scene.account())


async def test_a_cluster_whose_brokers_start_first_and_etcd_last_becomes_ready(
    scene: Scene,
) -> None:
    async with scene.judged():
        await scene.load.gap_s(time.monotonic())
    for pod in scene.cluster.pods.values():
        megabytes = memory_bytes(await pod.process_id()) / 1e6
        print(f"{pod.name}: ready {pod.probes.ready_after_s or 0:.1f} s after its start")
        print(f"{pod.name}: {megabytes:.0f} MB")


async def test_a_rolling_restart_under_load_loses_nothing_and_pauses_for_a_hand_over(
    scene: Scene,
) -> None:
    async with scene.judged():
        await scene.replace_brokers()


async def test_an_upgrade_under_load_loses_nothing_and_pauses_for_a_hand_over(
    scene: Scene,
) -> None:
    image = await scene.cluster.next_image(scene.brokers[0].container["image"])
    before = {await pod.image_id() for pod in scene.brokers}
    async with scene.judged():
        await scene.replace_brokers(image)
    assert not before & {await pod.image_id() for pod in scene.brokers}


async def test_nobody_keeps_the_former_address_of_a_nameserver_or_of_etcd(scene: Scene) -> None:
    replaced = [*scene.cluster.of(NAMESERVER), *scene.cluster.of(ETCD)]
    before = {pod.address for pod in replaced}
    async with scene.judged():
        for pod in replaced:
            began_s = time.monotonic()
            await scene.cluster.replace(pod, min_ready_s=MIN_READY_S)
            print(f"{pod.name}: writes paused for {await scene.load.gap_s(began_s):.2f} s")
    assert not before & {pod.address for pod in replaced}
    # Leases go through both, so brokers that found neither again would be unready by now.
    assert all(pod.is_ready for pod in scene.brokers)


async def test_a_master_that_is_killed_and_started_again_loses_nothing(scene: Scene) -> None:
    master = await scene.master()
    async with scene.judged():
        began_s = await master.kill()
        await scene.cluster.ready(BROKER)
        print(
            f"{master.name}, killed: ready again after {time.monotonic() - began_s:.1f} s, "
            f"writes paused for {await scene.load.gap_s(began_s):.2f} s"
        )


async def test_a_whole_cluster_stops_clean_and_comes_back_at_other_addresses(scene: Scene) -> None:
    servers = (BROKER, NAMESERVER, ETCD)
    before = {pod.address for owner in servers for pod in scene.cluster.of(owner)}
    for owner in servers:
        for stopped in await scene.cluster.stop(owner):
            assert stopped.exit_code == 0
    began_s = time.monotonic()
    await scene.cluster.start(*servers)
    await scene.cluster.ready(*servers)
    print(f"the whole cluster: start to ready {time.monotonic() - began_s:.1f} s")
    assert not before & {pod.address for owner in servers for pod in scene.cluster.of(owner)}
    async with scene.judged():
        await scene.load.gap_s(time.monotonic())
