"""Masters that are killed at any moment leave one chain and no left-overs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from aerobee.runtime import errors
from aerobee.runtime.clock import SystemClock
from aerobee.store.tier.folder_objects import FolderObjects
from aerobee.store.tier.manifest import Manifest
from aerobee.store.tier.uploads import find_manifest, verify_object
from tests.support.etcd import running_etcd
from tests.support.replica_group import ReplicaGroup, replica_group
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SIZE = 64 * 1024
BODY = b"x" * 5_000
DEATHS = 6


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


async def send_until_cancelled(group: ReplicaGroup) -> None:
    while True:
        with suppress(errors.AerobeeError):
            await group.send_until_stored("t", BODY)


def chain_of(objects: FolderObjects) -> list[Manifest]:
    found: list[Manifest] = []
    while (manifest := find_manifest(objects, len(found) * SIZE)) is not None:
        found.append(manifest)
    return found


async def test_masters_killed_at_any_moment_leave_one_chain_between_them(
    tmp_path: Path, etcd: str
) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    chance = random.Random(7)
    async with replica_group(
        tmp_path, etcd, (0, 1), segment_bytes=SIZE, tier_url=f"file://{mount}"
    ) as group:
        objects = FolderObjects(mount, f"{group.cluster}/broker-a", SystemClock())
        await group.in_sync(0, 1)
        await group.create_topic("t", 1)
        sending = asyncio.create_task(send_until_cancelled(group))
        for _ in range(DEATHS):
            come = len(chain_of(objects)) + 3
            await until(lambda come=come: len(chain_of(objects)) >= come, "three more segments")
            await asyncio.sleep(chance.random() / 10)  # at any step of an upload
            master = await group.master()
            await group.replicas[master].kill()
            await group.master(not_id=master)
            await group.replicas[master].start()
            await group.in_sync(0, 1)
        sending.cancel()
        await group.logs_equal(0, 1)
        master = await group.master()
        full = (await group.stats(master)).log_appended_end // SIZE
        await until(lambda: len(chain_of(objects)) >= full, "every full segment in the tier")

        def is_tidy() -> bool:
            left = {each.name for each in objects.list("segments/")}
            chain = chain_of(objects)
            return left == {n for each in chain for n in (each.object_name, each.tables_name)}

        await until(is_tidy, "no left-overs")
        chain = chain_of(objects)
        for number, manifest in enumerate(chain):
            verify_object(objects, manifest.object_name, SIZE, manifest.crc32)
            assert number == 0 or manifest.follows(chain[number - 1])
            path = group.replicas[master].folder / "commitlog" / f"{manifest.base:020}"
            assert objects.read(manifest.object_name, 0, SIZE) == path.read_bytes()
        assert len({manifest.epoch for manifest in chain}) > DEATHS // 2, "several masters did it"
