"""The course of the demo: three groups, a flood of events, a kill, a dead letter, the reckoning.

The order of the acts is the content of this file; each act is somebody else's. It needs a serving
cluster and leaves it as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from aerobee import AdminClient, Group
from aerobee.cli.demo.bookings import Booked, play_bookings
from aerobee.cli.demo.consumers import ConsumerProcess, ConsumerSpec, GroupTally, start_consumer
from aerobee.cli.demo.display import Display, Gauge, opened_display
from aerobee.cli.demo.feed import Feed
from aerobee.cli.demo.flights import Flight
from aerobee.cli.demo.killing import BrokerKilling, Killing
from aerobee.cli.demo.proof import judge
from aerobee.cli.demo.refunds import Refunded, Refunds, opened_refunds
from aerobee.cli.demo.report import Holding, Outcome, Pace
from aerobee.cli.demo.settings import TOPIC, DemoSettings
from aerobee.cli.demo.sightings import checksum
from aerobee.cli.failures import Failure
from aerobee.producer_client import Producer, ProducerConfig
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import GroupNotFound

LOOK_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the story is told with."""

    settings: DemoSettings
    flights: Sequence[Flight]
    nameserver: str
    cluster: str
    folder: Path
    """For the consumers' notes and logs."""
    console: Console
    clock: Clock
    broker_killing: BrokerKilling | None = None
    """With replicas."""


async def play(stage: Stage) -> Outcome:
    """Everything between a serving cluster and the figures.

    Raises:
        Failure: a process ended unasked, or nothing moved for `patience_s`.
        AerobeeError: the cluster refused something.
    """
    settings = stage.settings
    async with (
        AdminClient(stage.nameserver, stage.cluster, tls=False) as admin,
        Producer(
            connection=admin.connection,
            config=ProducerConfig(send_timeout_ms=settings.send_timeout_ms),
        ) as producer,
    ):
        await admin.topics.create(TOPIC, queues=settings.queues)
        async with (
            opened_refunds(
                admin, producer, settings, stage.flights, stage.nameserver, stage.clock
            ) as refunds,
            _consumers(stage) as consumers,
        ):
            everything = GroupTally(settings.all_group, consumers[:-1], stage.clock)
            carriers = GroupTally(settings.carriers_group, consumers[-1:], stage.clock)
            await _until_shared(stage, admin, everything, carriers)
            feed = Feed(stage.clock)
            stage.console.print(
                "a listener fails now, on purpose, until its message is a dead letter",
                soft_wrap=True,
            )
            await refunds.begin()
            killing = Killing(everything.consumers[len(everything.consumers) // 2])
            with opened_display(stage.console, _gauges(stage), stage.clock) as display:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(
                        feed.run(
                            producer, TOPIC, stage.flights, batch_messages=settings.batch_messages
                        ),
                        name="feed",
                    )
                    await _watch(stage, admin, display, feed, everything, carriers, killing)
                refunded = await _settle(display, refunds)
                booked = await _book(stage, admin, display)
                states = await _until_committed(stage, admin, (everything, carriers))
            for consumer in consumers:
                await consumer.stop()
        lag_after_close = {
            group: (await admin.groups.describe(group)).lag
            for group in (everything.group, carriers.group)
        }
    outcome = _outcome(
        stage, feed, everything, carriers, killing, refunded, states, lag_after_close
    )
    return replace(outcome, booked=booked)


@asynccontextmanager
async def _consumers(stage: Stage) -> AsyncIterator[list[ConsumerProcess]]:
    """All consumer processes, those of the first group first; none is left at the end."""
    settings = stage.settings
    wanted = [
        (f"consumer-{number + 1}", settings.all_group, "*") for number in range(settings.consumers)
    ]
    wanted.append(("by-tag-1", settings.carriers_group, " || ".join(settings.carriers)))
    started: list[ConsumerProcess] = []
    try:
        for name, group, tags in wanted:
            spec = ConsumerSpec(
                name=name,
                group=group,
                tags=tags,
                nameserver=stage.nameserver,
                cluster=stage.cluster,
                topic=TOPIC,
                session_timeout_ms=settings.member_session_timeout_ms,
                commit_interval_ms=settings.commit_interval_ms,
                folder=stage.folder,
            )
            started.append(await start_consumer(spec))
        yield started
    finally:
        for consumer in started:
            if consumer.process.returncode is None:
                await consumer.kill()


async def _until_shared(stage: Stage, admin: AdminClient, *tallies: GroupTally) -> None:
    """Wait until every queue is held by a member and every member holds one."""
    deadline_s = stage.clock.monotonic_s() + stage.settings.patience_s
    for tally in tallies:
        while True:
            holders = await _holders(admin, tally.group)
            if len(holders) == stage.settings.queues and len(set(holders.values())) == len(
                tally.consumers
            ):
                break
            tally.check_alive()
            if stage.clock.monotonic_s() > deadline_s:
                raise Failure(
                    f"group {tally.group} did not share its queues within "
                    f"{stage.settings.patience_s:g} s; it holds {holders}"
                )
            await asyncio.sleep(LOOK_INTERVAL_S)
    stage.console.print(
        f"{len(tallies[0].consumers)} consumers share {stage.settings.queues} queues in group "
        f"{tallies[0].group}; one reads {' and '.join(stage.settings.carriers)} by tag in group "
        f"{tallies[1].group}",
        soft_wrap=True,
        highlight=False,
    )


async def _holders(admin: AdminClient, group: str) -> dict[str, str]:
    """Queue -> client id, for the topic's queues that somebody holds."""
    try:
        state = await admin.groups.describe(group)
    except GroupNotFound:
        return {}
    return {
        str(each.queue): each.lease_holder
        for each in state.queues
        if each.lease_holder and each.queue.topic == TOPIC
    }


def _gauges(stage: Stage) -> list[Gauge]:
    carriers = sum(flight.carrier in stage.settings.carriers for flight in stage.flights)
    total = len(stage.flights)
    return [
        Gauge("acknowledged to the producer", total),
        Gauge(f"seen by {stage.settings.all_group}", total),
        Gauge(f"seen by {stage.settings.carriers_group}", carriers),
    ]


async def _watch(
    stage: Stage,
    admin: AdminClient,
    display: Display,
    feed: Feed,
    everything: GroupTally,
    carriers: GroupTally,
    killing: Killing,
) -> None:
    """Show progress, kill a consumer in the middle, return when both groups have seen all."""
    settings = stage.settings
    totals = [gauge.total or 0 for gauge in _gauges(stage)]
    while True:
        found = everything.read_new()
        carriers.read_new()
        everything.check_alive()
        carriers.check_alive()
        values = [feed.acknowledged, len(everything.seen), len(carriers.seen)]
        display.update(values, [f"{feed.per_second:,.0f}/s", everything.note(), ""])
        await _kill_master(stage, admin, display, values[1] / max(1, totals[1]))
        now_s = stage.clock.monotonic_s()
        if not killing.is_done and values[1] >= settings.kill_at_share * totals[1]:
            held = await _holders(admin, everything.group)
            await killing.execute(held, now_s=stage.clock.monotonic_s())
            display.say(
                f"kill -9 of {killing.victim.name} (process {killing.victim.process.pid}) at "
                f"{values[1]:,} flights; it held {', '.join(sorted(killing.queues)) or 'no queue'}"
            )
        elif killing.on_sightings(found, now_s=now_s):
            display.say(f"its queues were taken over after {killing.takeover_s:.1f} s")
        if values == totals and killing.is_done:
            return
        news_s = max(feed.last_s, everything.last_s, carriers.last_s)
        if news_s and now_s - news_s > settings.patience_s:
            display.say(f"nothing has moved for {settings.patience_s:g} s: giving up waiting")
            return
        await asyncio.sleep(LOOK_INTERVAL_S)


async def _kill_master(
    stage: Stage, admin: AdminClient, display: Display, seen_share: float
) -> None:
    """With replicas, once, when it is time."""
    killing = stage.broker_killing
    if killing is None or killing.victim is not None:
        return
    if seen_share >= stage.settings.master_kill_at_share:
        victim = await killing.execute(admin)
        display.say(f"kill -9 of {victim.name}, the master of {victim.broker_name}")


async def _settle(display: Display, refunds: Refunds) -> Refunded:
    """The message that failed until then: found among the dead letters, sent again."""
    letter = await refunds.until_dead()
    death = letter.told.death
    display.say(
        f"a message that group {refunds.group} cannot handle came {death.attempts} times and is a "
        f"dead letter: {death.reason}"
    )
    display.say("now the group can handle it, and the dead letter is sent again")
    return await refunds.end(letter)


async def _book(stage: Stage, admin: AdminClient, display: Display) -> Booked | None:
    if not stage.settings.transactions:
        return None
    display.say("a clerk books flights in transactions, and is killed before some are committed")
    return await play_bookings(admin, stage.settings, stage.nameserver, stage.folder, stage.clock)


async def _until_committed(
    stage: Stage, admin: AdminClient, tallies: Sequence[GroupTally]
) -> list[Group]:
    """Wait until the living members have committed all that they read; the groups as they are."""
    deadline_s = stage.clock.monotonic_s() + stage.settings.patience_s
    while True:
        states = [await admin.groups.describe(tally.group) for tally in tallies]
        for tally in tallies:
            tally.read_new()
        if all(state.lag == 0 for state in states) or stage.clock.monotonic_s() > deadline_s:
            return states
        await asyncio.sleep(LOOK_INTERVAL_S)


def _outcome(
    stage: Stage,
    feed: Feed,
    everything: GroupTally,
    carriers: GroupTally,
    killing: Killing,
    refunded: Refunded,
    states: Sequence[Group],
    lag_after_close: dict[str, int | None],
) -> Outcome:
    settings = stage.settings
    sent = {flight.identity: checksum(flight.line) for flight in stage.flights}
    by_tag = {
        flight.identity: sent[flight.identity]
        for flight in stage.flights
        if flight.carrier in settings.carriers
    }
    verdicts = {}
    paces = [Pace(who="producer", messages=feed.acknowledged, elapsed_s=feed.elapsed_s)]
    for tally, expected in ((everything, sent), (carriers, by_tag)):
        tally.read_new()
        # Who was killed comes first: what others saw again was seen there before.
        consumers = sorted(tally.consumers, key=lambda consumer: not consumer.was_killed)
        verdict = judge(expected, {consumer.name: consumer.sightings for consumer in consumers})
        verdicts[tally.group] = verdict
        paces.append(Pace(who=tally.group, messages=verdict.sightings, elapsed_s=tally.elapsed_s))
    return Outcome(
        verdicts=verdicts,
        sent=len(sent),
        paces=paces,
        holdings=[
            Holding(
                group=state.name,
                queue=str(queue.queue),
                holder=queue.lease_holder or "nobody",
                committed=queue.committed_offset or 0,
                end=queue.max_offset_end,
                lag=queue.lag,
            )
            for state in states
            for queue in state.queues
            if queue.queue.topic == TOPIC
        ],
        lag_after_close=lag_after_close,
        killed=killing.victim.name,
        commit_interval_ms=settings.commit_interval_ms,
        takeover_s=killing.takeover_s,
        refunded=refunded,
        retried_batches=feed.retried_batches,
        killed_master=stage.broker_killing.victim.name
        if stage.broker_killing is not None and stage.broker_killing.victim is not None
        else None,
    )
