"""POP gives up a queue that a member requests, once nobody uses it, and forgets nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from aerobee.broker.groups.ownership import POPS, Claim
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.sent_back import FinishedBeyond
from aerobee.broker.popping.confirmed import until_confirmed
from aerobee.broker.popping.hand_overs import HandOvers
from aerobee.store.engine.tables.finished_ranges import Range
from tests.broker.pop.test_pop_term import KEY, Replica, leading
from tests.support.journal_log import MemoryLog
from tests.support.waiting import until


class Offsets:
    """The group's offsets, as the offset journal has them."""

    def __init__(self) -> None:
        self.committed = 0
        self.finished: list[Range] = []
        self.confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def query(self, key: GroupQueue) -> int:
        return self.committed

    def commit(self, key: GroupQueue, offset: int, claim: Claim) -> asyncio.Future[None]:
        assert (key, claim) == (KEY, POPS)
        self.committed = offset
        return self.confirmed

    def claimed(self, key: GroupQueue, claim: Claim) -> Offsets:
        assert (key, claim) == (KEY, POPS)
        return self

    def finish_beyond(self, entry: FinishedBeyond) -> asyncio.Future[None]:
        self.finished += entry.ranges
        return self.confirmed


class Scene:
    def __init__(self, master: Replica) -> None:
        self.master = master
        self.offsets = Offsets()
        self.is_used = False
        offsets: Any = self.offsets
        self.hand_overs = HandOvers(
            offsets,
            master.clock,
            writer=lambda: master.term,
            is_used=lambda key: self.is_used,
        )

    async def finish(self, *numbers: int) -> None:
        """Of what is received next."""
        received = await self.master.receive()
        handles = [received[number][:2] for number in numbers]
        entries = self.master.queue().acknowledge(handles, self.master.clock.now_ms()).entries
        await until_confirmed(self.master.term.write(entries))

    @property
    def is_popped(self) -> bool:
        return self.master.term.has(KEY)

    async def some_turns(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


async def test_what_was_finished_out_of_turn_is_the_next_owners_to_know() -> None:
    async with leading(MemoryLog()) as master:
        scene = Scene(master)
        await until_confirmed(master.term.begin(KEY, 0))
        await scene.finish(0, 2)
        master.clock.advance_ms(30_000)
        scene.hand_overs.ask(KEY)
        await until(lambda: bool(scene.offsets.finished or scene.offsets.committed))
        assert scene.is_popped
        scene.offsets.confirmed.set_result(None)
        await until(lambda: not scene.is_popped)
        assert scene.offsets.committed == 1
        assert scene.offsets.finished == [Range(2, 3)]


async def test_pop_keeps_a_queue_of_which_messages_are_in_flight() -> None:
    async with leading(MemoryLog()) as master:
        scene = Scene(master)
        scene.offsets.confirmed.set_result(None)
        await until_confirmed(master.term.begin(KEY, 0))
        await scene.finish(0)
        scene.hand_overs.ask(KEY)
        await scene.some_turns()
        assert scene.is_popped
        master.clock.advance_ms(30_000)
        scene.hand_overs.ask(KEY)
        await until(lambda: not scene.is_popped)


async def test_pop_keeps_a_queue_that_a_client_uses_or_takes_up_again_meanwhile() -> None:
    async with leading(MemoryLog()) as master:
        scene = Scene(master)
        await until_confirmed(master.term.begin(KEY, 0))
        await scene.finish(0, 1, 2, 3)
        scene.is_used = True
        scene.hand_overs.ask(KEY)
        await scene.some_turns()
        assert scene.offsets.committed == 0
        scene.is_used = False
        scene.hand_overs.ask(KEY)
        await until(lambda: scene.offsets.committed == 4)
        await master.receive()
        scene.offsets.confirmed.set_result(None)
        await scene.some_turns()
        assert scene.is_popped
