"""The states of a pull stream's handles, driven by hand: none is left where nobody takes it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.reading.egress import ColdRead, Egress, Fetched, ReadCode
from aerobee.broker.reading.pull_session import (
    COLD_READS_MAX,
    ColdPull,
    PulledFrame,
    PullParameters,
    PullSession,
)
from aerobee.broker.reading.tag_filter import TagFilter
from aerobee.runtime.errors import AerobeeError, Busy, LeaseExpired
from aerobee.store.engine.queue_reads import QueueRead

TOPIC = "t"


@dataclass
class HandPlaces:
    """This replica's place in its group, as the test says."""

    is_slave: bool = False
    knows_bounds: bool = True
    place: int | None = None

    def suggested(self, queue_id: int, read_end: int | None) -> int | None:
        return self.place


class HandEgress(Egress):
    """Queues of numbered messages of one byte each; the test says what is cold, and what fails."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        self.cold: set[int] = set()
        self.failing: set[int] = set()
        self.asked: list[int] = []
        self.places = HandPlaces()
        self._places = self.places
        self._waiting = {}
        self._leased = {}

    def read(self, wanted: QueueRead) -> Fetched | ColdRead:
        self.asked.append(wanted.queue_id)
        if wanted.queue_id in self.failing:
            raise Busy("later")
        if wanted.queue_id in self.cold:
            return ColdRead(wanted, None)
        return self.find(wanted)

    def find(self, wanted: QueueRead) -> Fetched:
        end = self.ends.get(wanted.queue_id, 0)
        place = self.places.place
        if wanted.offset >= end:
            return Fetched(
                ReadCode.NO_NEW_MESSAGE, wanted.offset, 0, end, suggested_broker_id=place
            )
        records = bytes(min(wanted.max_bytes, end - wanted.offset))
        next_offset = wanted.offset + len(records)
        if wanted.filter is not None:  # a filter that nothing passes
            return Fetched(ReadCode.OK, next_offset, 0, end)
        return Fetched(ReadCode.OK, next_offset, 0, end, records, len(records), place)

    @property
    def waiting(self) -> int:
        """Handles that wait for their queues to grow."""
        return sum(map(len, self._waiting.values()))

    def grow(self, queue_id: int, count: int) -> None:
        self.ends[queue_id] = self.ends.get(queue_id, 0) + count
        self.on_grown([(TOPIC, queue_id)])

    def end_lease(self, key: GroupQueue) -> None:
        for ended in self._leased.pop(key, ()):
            ended()


def parameters(queue_id: int, *, filtered: bool = False, leased: bool = False) -> PullParameters:
    key = GroupQueue("g", TOPIC, queue_id) if leased else None
    tags = TagFilter(["none"]) if filtered else None
    return PullParameters(TOPIC, queue_id, 0, 4, 4, tags, key, 1 if leased else 0, "g")


@dataclass
class Stream:
    """A session, its loads under way, and what its client got."""

    egress: HandEgress = field(default_factory=HandEgress)
    loads: list[ColdPull] = field(default_factory=list)
    got: dict[int, int] = field(default_factory=dict)
    ended: dict[int, AerobeeError] = field(default_factory=dict)
    live: dict[int, tuple[int, dict[str, bool]]] = field(default_factory=dict)
    """Handles whose end was not told yet: the queue, and how it is read."""

    def __post_init__(self) -> None:
        self.session = PullSession(self.egress, is_current=lambda key, epoch: True)

    def subscribe(self, handle: int, queue_id: int, credit: int = 1 << 40, **fields: bool) -> None:
        self.got[handle] = 0
        self.live[handle] = queue_id, fields
        self.session.subscribe(handle, parameters(queue_id, **fields), credit)

    def unsubscribe(self, handle: int) -> None:
        self.live.pop(handle, None)
        self.session.unsubscribe(handle)

    def step(self) -> bool:
        """What the writer of frames does; False if there was nothing to do."""
        frame = self.session.next_frame()
        if isinstance(frame, ColdPull):
            self.loads.append(frame)
        elif isinstance(frame, PulledFrame):
            if frame.error is not None:
                self.ended[frame.handle] = frame.error
                self.live.pop(frame.handle, None)
            elif frame.fetched is not None and frame.handle in self.got:
                assert frame.fetched.next_offset >= self.got[frame.handle]
                self.got[frame.handle] = frame.fetched.next_offset
        else:
            self.check()
            return False
        self.check_places()
        return True

    def run(self) -> None:
        """Until there is nothing to send and nobody ready."""
        for _ in range(100_000):
            if not self.step() and not self.session.standing.ready:
                return
        raise AssertionError("the stream never came to rest")

    def finish(self, index: int = 0, error: AerobeeError | None = None) -> None:
        pull = self.loads.pop(index)
        self.session.loaded(pull, error or self.egress.find(pull.cold.wanted))

    def check(self) -> None:
        standing = self.session.standing
        assert not standing.cold or standing.loading == COLD_READS_MAX or standing.ready
        self.check_places()

    def check_places(self) -> None:
        """Each handle is in one place."""
        standing = self.session.standing
        assert standing.loading == len(self.loads) <= COLD_READS_MAX
        assert standing.behind <= standing.handles <= len(self.live)
        places = (
            standing.ready,
            standing.cold,
            sum(not pull.handle.ended for pull in self.loads),
            standing.without_credit,
            self.egress.waiting,
        )
        assert sum(places) == standing.handles, (standing, places)


async def test_queues_that_waited_for_a_load_go_on_when_what_they_want_is_in_memory_by_then() -> (
    None
):
    stream = Stream()
    for queue in range(16):
        stream.egress.grow(queue, 40)
        stream.egress.cold.add(queue)
        stream.subscribe(queue, queue)
    stream.run()
    assert len(stream.loads) == COLD_READS_MAX
    stream.egress.cold.clear()
    while stream.loads:
        stream.finish()
        stream.run()
    assert set(stream.got.values()) == {40}


async def test_a_load_that_ends_lets_the_next_one_begin_whatever_became_of_its_handle() -> None:
    stream = Stream()
    for queue in range(3 * COLD_READS_MAX):
        stream.egress.grow(queue, 4)
        stream.egress.cold.add(queue)
        stream.subscribe(queue, queue, leased=True)
    stream.run()
    stream.unsubscribe(0)
    stream.egress.end_lease(GroupQueue("g", TOPIC, 1))
    stream.finish()
    stream.finish()
    stream.finish(error=Busy("later"))
    stream.run()
    assert len(stream.loads) == COLD_READS_MAX
    assert isinstance(stream.ended[1], LeaseExpired)
    assert isinstance(stream.ended[2], Busy)
    while stream.loads:
        stream.finish()
        stream.run()
    ends = [stream.got[queue] for queue in range(3, 3 * COLD_READS_MAX)]
    assert set(ends) == {4}


async def test_a_waiting_queue_is_looked_at_once_for_each_load_that_ends() -> None:
    stream = Stream()
    for queue in range(100):
        stream.egress.grow(queue, 4)
        stream.egress.cold.add(queue)
        stream.subscribe(queue, queue)
    stream.run()
    stream.egress.asked.clear()
    stream.egress.cold -= {0}
    stream.finish()
    stream.run()
    assert len(stream.egress.asked) <= 3


async def test_handles_that_end_leave_nothing_behind_in_a_stream_whose_loads_hang() -> None:
    stream = Stream()
    for number in range(1_000):
        stream.egress.cold.add(number)
        stream.subscribe(number, number)
        if number % 2:
            stream.run()
        if number >= COLD_READS_MAX:
            stream.unsubscribe(number)
    assert stream.session.standing.cold + stream.session.standing.ready == 0
    assert stream.egress.waiting == 0


def command(stream: Stream, chance: random.Random, queues: int) -> None:
    """Something that the client does, or the writer of its frames."""
    handle = chance.randrange(max(1, len(stream.got)))
    match chance.randrange(8):
        case 0:
            stream.subscribe(
                len(stream.got),
                chance.randrange(queues),
                chance.choice((0, 3, 1 << 40)),
                filtered=chance.random() < 0.2,
                leased=chance.random() < 0.5,
            )
        case 1:
            stream.session.grant(handle, chance.randrange(1, 9))
        case 2 if chance.random() < 0.3:
            stream.unsubscribe(handle)
        case _:
            stream.step()


def event(stream: Stream, chance: random.Random, queues: int) -> None:
    """Something that happens to the queues and to what is under way."""
    queue = chance.randrange(queues)
    match chance.randrange(6):
        case 0:
            stream.egress.grow(queue, chance.randrange(1, 9))
        case 1:
            stream.egress.cold ^= {queue}
        case 2 if chance.random() < 0.3:
            stream.egress.failing ^= {queue}
        case 3 if chance.random() < 0.3:
            stream.egress.end_lease(GroupQueue("g", TOPIC, queue))
        case 4 if chance.random() < 0.1:
            stream.egress.wake_all()
        case _ if stream.loads:
            error = Busy("later") if chance.random() < 0.2 else None
            stream.finish(chance.randrange(len(stream.loads)), error)


@pytest.mark.parametrize("seed", range(150))
async def test_whatever_happens_no_handle_is_left_where_nobody_takes_it(seed: int) -> None:
    chance = random.Random(seed)
    stream = Stream()
    egress, session = stream.egress, stream.session
    queues = 2 + seed % 20
    for _ in range(300):
        if chance.random() < 0.7:
            command(stream, chance, queues)
        else:
            event(stream, chance, queues)
        stream.check_places()
    egress.failing.clear()
    for handle in stream.live:
        session.grant(handle, 1 << 40)
    stream.run()
    while stream.loads:
        stream.finish(chance.randrange(len(stream.loads)))
        stream.run()
    assert egress.waiting == session.handle_count == len(stream.live)
    for handle, (queue, fields) in stream.live.items():
        if not fields["filtered"]:
            assert stream.got[handle] == egress.ends.get(queue, 0)
    for place in session.places():
        assert place.position == egress.ends.get(place.key.queue_id, 0)
    session.close()
    assert egress.waiting == 0
    assert not egress._leased
