"""Schedules outlive the processes that run them: with kill -9 and fail-over between replicas, each
run is sent once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message
from aerobee.client_core.recurring import RUN_MS
from aerobee.runtime import errors
from tests.support.etcd import running_etcd
from tests.support.replica_group import replica_group
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

NAMES = ("a", "b", "c")


async def runs(admin: AdminClient) -> dict[str, Counter[int]]:
    """How often each run of each schedule was sent."""
    found: dict[str, Counter[int]] = {name: Counter() for name in NAMES}
    for place in (await admin.topics.describe("reports")).queues:
        page = await admin.messages.from_queue(place.queue, 0, max_messages=10_000)
        for each in page.messages:
            found[each.body.decode()][int(each.properties[RUN_MS])] += 1
    return found


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


async def test_masters_that_are_killed_send_each_run_once_between_them(
    tmp_path: Path, etcd: str
) -> None:
    async with (
        replica_group(tmp_path, etcd, (0, 1)) as group,
        AdminClient(group.nameserver, group.cluster) as admin,
    ):
        await group.in_sync(0, 1)
        await group.create_topic("reports", 2)
        for name in NAMES:
            message = Message("reports", name.encode())
            await admin.schedules.add(name, message, every=1, missed="all")

        async def until_run(count: int) -> None:
            async def have_run() -> bool:
                with suppress(errors.AerobeeError):
                    return all(len(times) >= count for times in (await runs(admin)).values())
                return False

            await until(have_run, f"each schedule has run {count} times")

        for killed in range(3):
            await until_run(3 * killed + 3)
            master = await group.master()
            await group.replicas[master].kill()
            await group.master(not_id=master)
            await group.replicas[master].start()
            await group.in_sync(0, 1)
        await until_run(12)
        for name in NAMES:
            await admin.schedules.pause(name)
        for name, times in (await runs(admin)).items():
            schedule = await admin.schedules.find(name)
            begun = schedule.created_ms
            assert times == Counter(begun + 1_000 * n for n in range(1, len(times) + 1))
            assert schedule.runs == len(times)
        await group.logs_equal(0, 1)
