"""What an audit copies of a broker's memory: in short steps, and what belongs together at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from aerobee.broker.groups.members import Member
from aerobee.broker.groups.queue_leases import GroupQueue, Lease
from aerobee.broker.observe.audit.copying import NAMES_PER_TURN, Chosen, copy_queues
from aerobee.broker.observe.audit.log_checksums import LogChecksums
from aerobee.broker.observe.audit.rows import ROWS_MAX
from aerobee.broker.observe.audit.snapshots import Snapshots, Table, Wanted
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable

GROUP = "g"


@dataclass
class ShrinkingGroup:
    """A group whose only member leaves while it is copied; its leases go with it."""

    clients: list[str]
    leases_held: int
    ownership: Any = field(init=False)
    members: Any = field(init=False)

    def __post_init__(self) -> None:
        self.ownership = SimpleNamespace(leases=SimpleNamespace(all_held=self._all_held))
        self.members = SimpleNamespace(all_members=self._all_members)

    def _all_held(self) -> list[Lease]:
        return [
            Lease(GroupQueue(GROUP, "t", number), client, 1)
            for client in self.clients
            for number in range(self.leases_held)
        ]

    def _all_members(self) -> Iterator[Member]:
        return (Member(GROUP, client, "", (), False, 30.0, 0.0) for client in self.clients)


async def _nothing() -> None:
    return None


async def test_whoever_holds_a_lease_in_a_reading_is_a_member_in_it() -> None:
    group = ShrinkingGroup(["c1"], 3 * ROWS_MAX)
    parts: Any = SimpleNamespace(
        clock=ManualClock(),
        folder=None,
        roles=None,
        progress=SimpleNamespace(coordinator=group, offsets=SimpleNamespace(begun=_nothing)),
    )
    snapshots = Snapshots(parts)
    wanted = Wanted(frozenset({Table.LEASES, Table.MEMBERS}))
    reading_task = asyncio.create_task(snapshots.read(wanted))
    await asyncio.sleep(0)
    group.clients.clear()
    reading = await reading_task
    holders = {lease.client_id for rows in reading.leases for lease in rows}
    members = {member.client_id for rows in reading.members for member in rows}
    assert holders <= members


def test_topics_without_a_message_are_gone_through_in_steps() -> None:
    topics = TopicTable()
    for number in range(5 * NAMES_PER_TURN):
        topics.put(TopicConfig(name=f"t{number}", read_queue_count=0, write_queue_count=0))
    store = cast(Any, SimpleNamespace(queues=[]))
    walk = copy_queues(topics, store, Chosen()).__await__()
    ended = object()
    steps = 0
    while next(walk, ended) is not ended:
        steps += 1
    assert steps >= 5


async def test_a_log_that_is_cut_within_a_range_ends_its_checksum_with_a_fault() -> None:
    class CutLog:
        """Its confirmed end was told before it was cut back to 4096."""

        confirmed_end, min_offset = 8192, 0
        asked = 0

        @property
        def log(self) -> CutLog:
            return self

        def contiguous_end(self, position: int) -> int:
            self.asked += 1
            assert self.asked < 100, "a range is summed in few steps"
            return 4096

        def read(self, runs: tuple[tuple[int, int], ...]) -> bytes:
            return random.Random(1).randbytes(sum(size for _, size in runs))

        def segments(self) -> list[Any]:
            return [SimpleNamespace(base=0)]

    class Reads:
        step_bytes = 4096

        def spares_sends(self) -> bool:
            return True

        async def run_in_turn(self, reader: str, size: int, work: Any) -> Any:
            return work()

        def spend(self, size: int) -> None:
            return None

    checksums = LogChecksums(cast(Any, CutLog()), cast(Any, Reads()))
    found = [each async for each in checksums.ranges(0, -1, 8192)]
    assert [(each.begin, each.end) for each in found] == [(0, 8192)]
    assert isinstance(found[0].fault, MessageNotFound)
