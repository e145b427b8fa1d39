"""A cluster of the newest release is upgraded to the working tree as docs/operations/upgrade.md has
it, while clients of both versions work: nothing is lost, stored twice or out of order, and there is
a way back for a broker. `make upgrade-test` runs it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upgrade.cluster import GROUPS, Cluster, open_cluster
from tests.upgrade.traffic import TOPIC, open_traffic
from tests.upgrade.versions import NotThere, Version, released, working_tree

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

QUEUES = 8


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Version, Version]:
    try:
        old = released(tmp_path_factory.mktemp("release") / "tree")
    except NotThere as reason:
        pytest.skip(str(reason))
    new = working_tree()
    for version in (old, new):
        version.check_modules()
    return old, new


async def test_an_upgrade_from_the_release_loses_nothing_and_clients_of_both_versions_go_on(
    versions: tuple[Version, Version], tmp_path: Path
) -> None:
    old, new = versions
    async with open_cluster(tmp_path, old) as cluster:
        await cluster.tell(old, "topic", "create", TOPIC, "--queues", str(QUEUES))
        async with open_traffic(cluster, versions, tmp_path / "clients") as traffic:
            # Clients of the new version, on servers of the old one.
            await traffic.flows()
            for nameserver in cluster.nameservers:
                await cluster.change(nameserver, new)
            await traffic.flows()
            first, *others = GROUPS
            await upgrade_group(cluster, first, new)
            # One group is new and the rest is old, for as long as an operator judges.
            await traffic.flows()
            await step_back_and_forth(cluster, first, versions)
            await traffic.flows()
            for group in others:
                await upgrade_group(cluster, group, new)
            # Clients of the old version, on servers of the new one.
            await traffic.flows()
            await traffic.end()
            print(f"{traffic.repeated()} of the deliveries were repeated")
            assert list(traffic.violations()) == []
        for node in cluster.brokers():
            assert await node.process.stop() == 0
            new.run("store", "verify", str(cluster.store(tmp_path, node.name)))


async def upgrade_group(cluster: Cluster, group: str, version: Version) -> None:
    """Slaves first, so that there is one hand-over."""
    master = await cluster.master(group, version)
    slaves = [node for node in cluster.groups[group] if node is not master]
    for node in (*slaves, master):
        await cluster.change(node, version)


async def step_back_and_forth(
    cluster: Cluster, group: str, versions: tuple[Version, Version]
) -> None:
    """A broker gets the former version with the folder that the new one has written, leads its
    group, and is upgraded once more."""
    old, new = versions
    master = await cluster.master(group, new)
    node = next(node for node in cluster.groups[group] if node is not master)
    await cluster.change(node, old)
    broker_id = cluster.groups[group].index(node)
    await cluster.tell(new, "broker", "handover", group, "--to", str(broker_id))
    assert await cluster.master(group, old) is node
    await cluster.change(node, new)
