"""Hours of schedules in moments: each run comes at its time, once, whatever fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.client_core.recurring import RUN_MS, RUN_SCHEDULE
from aerobee.runtime import errors
from aerobee.testing import VirtualCluster, faults

START = datetime(2030, 4, 1, 5, tzinfo=UTC)
"""A Monday, 7:00 in Berlin."""
MINUTE = timedelta(minutes=1)


@dataclass
class Scene:
    cluster: VirtualCluster
    admin: AdminClient

    async def messages(self, topic: str = "reports") -> list[ReceivedMessage]:
        """All of them, in the order in which they were stored."""
        found: list[ReceivedMessage] = []
        description = await self.admin.topics.describe(topic)
        for place in description.queues:
            bounds = (await self.admin.offsets.bounds([place.queue]))[place.queue]
            if bounds.max_offset_end:
                page = await self.admin.messages.from_queue(place.queue, 0, max_messages=10_000)
                found += page.messages
        return sorted(found, key=lambda each: each.store_timestamp_ms)

    async def runs(self, topic: str = "reports") -> list[datetime]:
        """The times that they are for."""
        return [
            datetime.fromtimestamp(int(each.properties[RUN_MS]) / 1_000, UTC)
            for each in await self.messages(topic)
        ]


@asynccontextmanager
async def scene(*, groups: int = 1, replicas: int = 1) -> AsyncIterator[Scene]:
    async with (
        VirtualCluster(starts_at=START, groups=groups, replicas=replicas, seed=3) as cluster,
        AdminClient(cluster.nameservers) as admin,
    ):
        await cluster.create_topic("reports")
        yield Scene(cluster, admin)


async def test_each_run_comes_at_its_time_and_says_which_it_is() -> None:
    async with scene() as here:
        message = Message("reports", b"daily", tag="d", keys=["r-1"], properties={"to": "ada"})
        added = await here.admin.schedules.add(
            "daily", message, cron="0,40 8-9 * * MON-FRI", zone="Europe/Berlin"
        )
        first = datetime(2030, 4, 1, 6, tzinfo=UTC)
        assert added.next_ms == first.timestamp() * 1_000
        await here.cluster.advance(minutes=61)
        (run,) = await here.messages()
        assert (run.body, run.tag, run.keys) == (b"daily", "d", ("r-1",))
        assert run.properties["to"] == "ada"
        assert run.properties[RUN_SCHEDULE] == "daily"
        assert int(run.properties[RUN_MS]) == added.next_ms <= run.store_timestamp_ms
        assert run.store_timestamp_ms - added.next_ms < 1_500
        await here.cluster.advance(minutes=110)
        assert await here.runs() == [first + MINUTE * passed for passed in (0, 40, 60, 100)]
        found = await here.admin.schedules.find("daily")
        assert (found.runs, found.missed_runs) == (4, 0)
        assert found.next_ms == int((first + timedelta(days=1)).timestamp() * 1_000)
        assert len({each.message_id for each in await here.messages()}) == 4


async def test_an_interval_ends_after_so_many_runs_or_at_its_end() -> None:
    async with scene() as here:
        schedules = here.admin.schedules
        start = START + timedelta(minutes=10)
        message = Message("reports", b"r")
        await schedules.add("three", message, every=90, start=start, max_runs=3)
        await here.cluster.advance(hours=1)
        assert await here.runs() == [start + timedelta(seconds=90 * n) for n in range(3)]
        assert (await schedules.find("three")).has_ended
        until = START + timedelta(hours=1, minutes=3)
        await schedules.add("short", message, every=MINUTE, until=until)
        await here.cluster.advance(hours=1)
        assert len(await here.runs()) == 3 + 2
        await schedules.change("three", max_runs=4)
        await here.cluster.advance(minutes=5)
        assert len(await here.runs()) == 3 + 2 + 1


async def test_a_schedule_is_paused_resumed_run_now_changed_and_removed() -> None:
    async with scene() as here:
        schedules = here.admin.schedules
        await schedules.add("r", Message("reports", b"1"), every=MINUTE)
        await here.cluster.advance(seconds=150)
        await schedules.pause("r")
        assert (await schedules.find("r")).is_paused
        await here.cluster.advance(hours=1)
        assert len(await here.runs()) == 2
        await schedules.run_now("r")
        (_, _, asked) = await here.messages()
        assert int(asked.properties[RUN_MS]) == here.cluster.now.timestamp() * 1_000
        await schedules.resume("r")
        await here.cluster.advance(seconds=60)
        found = await schedules.find("r")
        assert (found.runs, found.missed_runs) == (3, 0), "a pause misses nothing"
        await schedules.change("r", message=Message("reports", b"2"), cron="0 * * * *")
        await here.cluster.advance(hours=1)
        bodies = [each.body for each in await here.messages()]
        assert bodies == [b"1", b"1", b"1", b"1", b"2"]
        await schedules.remove("r")
        assert await schedules.recurring() == []
        await here.cluster.advance(hours=2)
        assert len(await here.runs()) == 5
        with pytest.raises(errors.ScheduleNotFound):
            await schedules.pause("r")


@pytest.mark.parametrize(
    ("missed", "wanted", "lost"),
    [("skip", 0, 3), ("one", 1, 2), ("all", 3, 0)],
)
async def test_runs_missed_in_an_outage_are_left_out_or_caught_up(
    missed: str, wanted: int, lost: int
) -> None:
    async with scene() as here:
        schedules = here.admin.schedules
        await schedules.add(
            "hourly",
            Message("reports", b"h"),
            cron="0 * * * *",
            missed=missed,  # type: ignore[arg-type]
        )
        await here.cluster.advance(minutes=30)
        await here.cluster.stop_broker()
        await here.cluster.advance(hours=3)
        await here.cluster.start_broker()
        await here.cluster.advance(minutes=5)
        runs = await here.runs()
        hours = [START + timedelta(hours=hour) for hour in (1, 2, 3)]
        assert runs == hours[3 - wanted :]
        found = await schedules.find("hourly")
        assert (found.runs, found.missed_runs) == (wanted, lost)
        await here.cluster.advance(minutes=30)
        assert (await here.runs())[wanted:] == [START + timedelta(hours=4)]


async def test_a_run_that_is_a_few_seconds_late_is_not_missed() -> None:
    async with scene() as here:
        await here.admin.schedules.add("hourly", Message("reports", b"h"), cron="0 * * * *")
        await here.cluster.advance(minutes=59, seconds=50)
        await here.cluster.stop_broker()
        await here.cluster.advance(seconds=20)
        await here.cluster.start_broker()
        await here.cluster.advance(seconds=40)
        assert await here.runs() == [START + timedelta(hours=1)]


async def test_a_new_master_goes_on_where_the_last_one_died() -> None:
    async with scene(replicas=2) as here:
        schedules = here.admin.schedules
        for name in ("a", "b", "c"):
            await schedules.add(name, Message("reports", name.encode()), every=7, missed="all")
        for _ in range(6):
            await here.cluster.advance(seconds=37)
            master = await here.cluster.master()
            faults.kill(here.cluster, master)
            await here.cluster.advance(seconds=60)
            await here.cluster.start_broker(master)
            await here.cluster.advance(seconds=30)
        messages = await here.messages()
        for name in ("a", "b", "c"):
            found = await schedules.find(name)
            times = [
                int(each.properties[RUN_MS]) for each in messages if each.body == name.encode()
            ]
            begun = found.created_ms
            assert sorted(times) == [begun + 7_000 * n for n in range(1, len(times) + 1)]
            assert found.runs == len(times) == (found.last_ms - begun) // 7_000
        assert len({each.message_id for each in messages}) == len(messages)


async def test_names_are_unique_over_all_broker_groups_and_bad_schedules_are_refused() -> None:
    async with scene(groups=2) as here:
        schedules = here.admin.schedules
        message = Message("reports", b"r")
        await schedules.add("r", message, every=60)
        await here.cluster.create_topic("others")
        with pytest.raises(errors.ScheduleExists):
            await schedules.add("r", Message("others", b"o"), every=60)
        with pytest.raises(errors.TopicNotFound):
            await schedules.add("x", Message("nowhere", b"o"), every=60)
        with pytest.raises(errors.InvalidArgument, match="cron expression"):
            await schedules.add("x", message, cron="0 25 * * *")
        with pytest.raises(errors.InvalidArgument, match="time zone"):
            await schedules.add("x", message, cron="0 5 * * *", zone="Mars")
        with pytest.raises(errors.InvalidArgument, match="either"):
            await schedules.add("x", message)
        with pytest.raises(errors.InvalidArgument, match="never run"):
            await schedules.add("x", message, cron="0 5 * * *", until=START - MINUTE)
        with pytest.raises(errors.InvalidArgument, match="delay"):
            await schedules.add("x", Message("reports", b"r", delay=5), every=60)
        assert [each.name for each in await schedules.recurring("reports")] == ["r"]
        assert await schedules.recurring("others") == []


async def test_a_schedule_without_its_topic_does_not_hold_up_the_others() -> None:
    async with scene() as here:
        schedules = here.admin.schedules
        await here.cluster.create_topic("short")
        await schedules.add("a", Message("short", b"a"), every=60)
        await schedules.add("b", Message("reports", b"b"), every=60)
        await here.cluster.delete_topic("short")
        await here.cluster.advance(minutes=10)
        assert len(await here.runs()) == 10
        assert "short" in (await schedules.find("a")).trouble
        await here.cluster.create_topic("short")
        await here.cluster.advance(minutes=2)
        found = await schedules.find("a")
        assert found.trouble == ""
        assert found.runs >= 1
        assert found.runs + found.missed_runs == 12


@pytest.mark.parametrize("seed", range(4))
async def test_a_power_cut_between_a_run_and_its_message_loses_and_doubles_none(seed: int) -> None:
    async with scene() as here:
        schedules = here.admin.schedules
        for name in ("a", "b"):
            await schedules.add(name, Message("reports", name.encode()), every=1, missed="all")
        for cut in range(6):
            await here.cluster.advance(seconds=5 + 0.37 * cut)
            faults.cut_power(here.cluster, seed=100 * seed + cut)
            await here.cluster.advance(seconds=1)
            await here.cluster.start_broker()
            await here.cluster.advance(seconds=3)
        messages = await here.messages()
        for name in ("a", "b"):
            found = await schedules.find(name)
            times = sorted(
                int(each.properties[RUN_MS]) for each in messages if each.body == name.encode()
            )
            assert times == [found.created_ms + 1_000 * n for n in range(1, len(times) + 1)]
            assert found.runs == len(times) > 30


@pytest.mark.parametrize("dies", [False, True])
async def test_a_run_whose_message_found_no_room_is_sent_once_there_is_some(dies: bool) -> None:
    async with scene() as here:
        schedules = here.admin.schedules
        await schedules.add("r", Message("reports", b"r"), every=10, missed="all")
        await here.cluster.advance(seconds=15)
        with faults.full_disk(here.cluster):
            await here.cluster.advance(seconds=30)
            assert len(await here.runs()) == 1
            with pytest.raises(errors.AerobeeError):
                await schedules.pause("r")
            if dies:
                faults.kill(here.cluster)
        if dies:
            await here.cluster.start_broker()
        await here.cluster.advance(seconds=10)
        found = await schedules.find("r")
        passed = [int(each.timestamp() * 1_000) - found.created_ms for each in await here.runs()]
        assert sorted(passed) == [10_000, 20_000, 30_000, 40_000, 50_000][: len(passed)]
        assert found.runs == len(passed) >= 4
