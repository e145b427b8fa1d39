"""A real cluster is harmed under load, and the history of its clients judged.

etcd, two nameservers and three brokers are processes of their own; producers, two members of a
consumer group and the judge live in the test. Scenarios with equal settings share one cluster,
whose clients go through all of them without a restart; each verdict is about the whole history so
far.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.failover import scenarios
from tests.failover.trial import Trial, open_trial
from tests.failover.world import Settings, broker_node

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

KIB = 1024
SMALL_DISK_BYTES = 96 * KIB * KIB
SMALL_DISK_OF = 2
PAUSE_MARGIN_S = 1.5
"""Above the lease, for a fail-over on a machine that has time; tests allow it twice."""


class SharedTrial:
    """One trial for many tests; another one after a test that failed."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self._root = root
        self._settings = settings
        self._made = 0
        self._trial: Trial | None = None
        self._task: asyncio.Task[None] | None = None
        self._end = asyncio.Event()

    async def get(self) -> Trial:
        if self._trial is not None and not self._trial.is_sound:
            await self.close()
        if self._trial is None:
            self._made += 1
            self._end = asyncio.Event()
            ready: asyncio.Future[Trial] = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._hold(ready))
            await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                await self._task
            self._trial = ready.result()
        return self._trial

    async def close(self) -> None:
        self._end.set()
        if self._task is not None:
            await self._task
        self._trial = self._task = None

    async def _hold(self, ready: asyncio.Future[Trial]) -> None:
        # What a failed trial has left on the small disk is not another trial's.
        roots = {
            one: _emptied(root) / f"{self._made}"
            for one, root in self._settings.store_roots.items()
        }
        settings = replace(self._settings, store_roots=roots)
        async with open_trial(self._root / f"{self._made}", settings) as trial:
            ready.set_result(trial)
            await self._end.wait()


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A small file system, where one can be mounted."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or not shutil.which("mount"):
        yield None
        return
    folder = tmp_path_factory.mktemp("small-disk")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs", str(folder)],
        capture_output=True,
    )
    if done.returncode:
        yield None
        return
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, small_disk: Path | None
) -> AsyncIterator[SharedTrial]:
    settings = Settings(
        segment_bytes=256 * KIB,
        store_roots={SMALL_DISK_OF: small_disk / "store"} if small_disk is not None else {},
    )
    shared = SharedTrial(tmp_path_factory.mktemp("failover"), settings)
    yield shared
    await shared.close()


@pytest_asyncio.fixture(loop_scope="module")
async def trial(shared: SharedTrial) -> Trial:
    return await shared.get()


def lease_s(trial: Trial) -> float:
    return trial.world.settings.lease_ms / 1_000


async def test_a_master_killed_loses_nothing_and_writes_go_on_within_the_lease(
    trial: Trial,
) -> None:
    async with trial.judged():
        pause_s = await scenarios.kill_master(trial)
        assert pause_s < lease_s(trial) + 2 * PAUSE_MARGIN_S


@pytest.mark.thorough
async def test_a_slave_killed_holds_writes_up_for_the_allowed_lag_and_no_longer(
    trial: Trial,
) -> None:
    async with trial.judged():
        await scenarios.kill_slave(trial)


@pytest.mark.thorough
async def test_a_master_that_stood_still_beyond_its_lease_acknowledges_nothing_and_follows(
    trial: Trial,
) -> None:
    async with trial.judged():
        await scenarios.pause_master(trial)


@pytest.mark.thorough
async def test_a_master_without_its_slaves_goes_on_as_long_as_it_has_its_lease(
    trial: Trial,
) -> None:
    async with trial.judged():
        await scenarios.part_master_from_slaves(trial)


@pytest.mark.thorough
async def test_a_master_without_nameservers_is_replaced_though_clients_and_slaves_reach_it(
    trial: Trial,
) -> None:
    async with trial.judged():
        await scenarios.part_master_from_nameservers(trial)


@pytest.mark.thorough
async def test_a_master_that_nobody_reaches_is_replaced_and_comes_back_as_a_slave(
    trial: Trial,
) -> None:
    async with trial.judged():
        await scenarios.part_master_from_all(trial)


@pytest.mark.thorough
async def test_slaves_whose_acknowledgements_do_not_arrive_leave_the_set(trial: Trial) -> None:
    async with trial.judged():
        await scenarios.deafen_master(trial)


@pytest.mark.thorough
async def test_a_master_that_hears_all_and_is_heard_by_clients_only_is_replaced(
    trial: Trial,
) -> None:
    async with trial.judged():
        await scenarios.mute_master(trial)


@pytest.mark.thorough
async def test_an_etcd_that_is_killed_and_restarted_changes_nothing(trial: Trial) -> None:
    async with trial.judged():
        epoch = (await trial.world.record()).epoch
        await scenarios.restart_etcd(trial)
        await trial.world.healthy()
        assert (await trial.world.record()).epoch == epoch


@pytest.mark.thorough
async def test_an_etcd_away_beyond_the_lease_stops_writes_and_loses_nothing(trial: Trial) -> None:
    async with trial.judged():
        await scenarios.restart_etcd(trial, away_s=lease_s(trial) + 1.0)


@pytest.mark.thorough
async def test_one_nameserver_of_two_is_enough(trial: Trial) -> None:
    async with trial.judged():
        epoch = (await trial.world.record()).epoch
        await scenarios.kill_nameserver(trial)
        assert (await trial.world.record()).epoch == epoch


@pytest.mark.thorough
async def test_a_slave_behind_a_slow_wire_leaves_the_set_and_returns(trial: Trial) -> None:
    async with trial.judged():
        await scenarios.slow_slave(trial)


@pytest.mark.thorough
async def test_a_link_that_flaps_does_no_harm(trial: Trial) -> None:
    async with trial.judged():
        await scenarios.flapping_link(trial)


@pytest.mark.thorough
async def test_a_slave_whose_disk_is_full_leaves_the_set_lives_and_returns(
    trial: Trial, small_disk: Path | None
) -> None:
    if small_disk is None:
        pytest.skip("a file system can be mounted by root on Linux only")
    async with trial.judged():
        await scenarios.fill_disk_of_slave(trial, SMALL_DISK_OF, SMALL_DISK_BYTES)


async def test_a_planned_hand_over_pauses_writes_briefly(trial: Trial) -> None:
    async with trial.judged():
        # 0.3 s on a quiet machine; a fail-over waits for a lease of 2 s first.
        assert await scenarios.planned_hand_over(trial) < 2.5


@pytest.mark.thorough
async def test_three_fail_overs_in_a_row_lose_nothing(trial: Trial) -> None:
    async with trial.judged():
        for _ in range(3):
            await scenarios.kill_master(trial)
            await trial.world.healthy()


@pytest.mark.thorough
async def test_a_rolling_restart_loses_nothing_and_leaves_equal_files(trial: Trial) -> None:
    async with trial.judged():
        await scenarios.rolling_restart(trial)
    try:
        await trial.stopped_clean()
    finally:
        trial.is_sound = False


@pytest.mark.thorough
async def test_the_unconfirmed_tail_of_a_stranded_master_is_cut_and_was_seen_by_nobody(
    tmp_path: Path,
) -> None:
    async with open_trial(tmp_path, Settings(mode="async_master")) as trial:
        async with trial.judged():
            await scenarios.strand_master(trial)
        assert trial.figures.lost > 0, "the master acknowledged nothing alone: nothing was shown"
        stranded = trial.figures.lost
        async with trial.judged():
            await scenarios.planned_hand_over(trial)
            await scenarios.kill_slave(trial)
        assert trial.figures.lost == stranded, "a planned hand-over loses nothing"
        await trial.stopped_clean()


@pytest.mark.thorough
async def test_with_asynchronous_replication_a_killed_master_takes_only_its_newest_messages(
    tmp_path: Path,
) -> None:
    async with open_trial(tmp_path, Settings(mode="async_master", replicas=(0, 1))) as trial:
        async with trial.judged():
            begin_s = time.monotonic()
            await scenarios.kill_master(trial)
            # Until shortly after the kill: acknowledgements were on their way.
            trial.may_lose.append((begin_s - 1.0, begin_s + 0.3))
        assert trial.figures.lost < 100
        await trial.stopped_clean()


@pytest.mark.thorough
async def test_with_two_replicas_required_a_lonely_master_takes_nothing_until_one_is_back(
    tmp_path: Path,
) -> None:
    settings = Settings(min_insync_replicas=2, flush_mode="sync", replicas=(0, 1))
    async with open_trial(tmp_path, settings) as trial:
        world, history = trial.world, trial.clients.history
        async with trial.judged():
            master = await world.master()
            (slave,) = await world.slaves()
            world.network.part(broker_node(master), [broker_node(slave)])
            await world.in_sync(master)
            stored = len(history.acknowledged)
            fault_s = time.monotonic()
            await asyncio.sleep(2.0)
            assert len(history.acknowledged) == stored
            world.network.heal()
            await trial.paused("too few replicas", fault_s)
        async with trial.judged():
            await world.brokers[master].kill()
            await world.elected(not_id=master)
            await world.brokers[master].start()
        await trial.stopped_clean()
