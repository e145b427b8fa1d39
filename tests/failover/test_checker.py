"""The judge of fail-overs finds what is wrong, and only that: histories doctored one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.failover.checker import Failed, Kind, Stored, judge, lost
from tests.failover.history import (
    RETRIES_MAX,
    Acknowledged,
    Committed,
    Delivered,
    History,
    Lane,
    Place,
    body_of,
    failures_of,
)

LANES = [Lane("p0", 0), Lane("p1", 0), Lane("p0", 1)]
MESSAGES = 20
LATER = Lane("p0-later", 2)
FAILING = Lane("p0-failing", 3)


class Run:
    """A run in which everything went well, to be doctored."""

    def __init__(self) -> None:
        self.history = History()
        self.stored: list[Stored] = []
        ends: dict[int, int] = {}
        for number in range(MESSAGES):
            for lane in LANES:
                offset = ends.get(lane.queue_id, 0)
                ends[lane.queue_id] = offset + 1
                place = Place(lane.queue_id, offset)
                body = body_of(lane, number, b"x" * number)
                self.stored.append(Stored(place, body, 0))
                at_s = float(len(self.stored))
                self.history.acknowledged.append(
                    Acknowledged(lane, number, offset, at_s - 0.5, at_s)
                )
                self.history.delivered.append(Delivered(place, body, at_s + 0.1))
                self.history.committed.append(Committed(lane.queue_id, offset, 0, True, at_s + 0.2))
        self.history.attempted = dict.fromkeys(LANES, MESSAGES)
        self.failed: Failed | None = None
        log = b"".join(one.body for one in self.stored)
        self.replicas = {"replica 0": log, "replica 1": log}

    def add_later(self) -> None:
        """Messages that arrive in the opposite order, each when it is due."""
        for number in reversed(range(MESSAGES)):
            place = Place(LATER.queue_id, MESSAGES - 1 - number)
            body = body_of(LATER, number, b"")
            due_ms = 1_000 - number
            self.history.due_ms[LATER, number] = due_ms
            self.history.acknowledged.append(Acknowledged(LATER, number, -1, 90.0, 91.0))
            self.stored.append(Stored(place, body, due_ms))
            self.history.delivered.append(Delivered(place, body, 100.0))
        self.history.attempted[LATER] = MESSAGES

    def add_failing(self) -> None:
        """Some messages come again, and some of them end as dead letters."""
        names = [(FAILING, number) for number in range(MESSAGES)]
        for lane, number in names:
            place = Place(FAILING.queue_id, number)
            body = body_of(lane, number, b"")
            self.history.acknowledged.append(Acknowledged(lane, number, number, 90.0, 91.0))
            self.stored.append(Stored(place, body, 0))
            self.history.delivered.append(Delivered(place, body, 100.0))
        self.history.attempted[FAILING] = MESSAGES
        self.failed = Failed(
            attempts=[
                (name, times)
                for name in names
                for times in range(1, min(failures_of(name[1]), RETRIES_MAX) + 1)
            ],
            dead_letters=[name for name in names if failures_of(name[1]) > RETRIES_MAX],
        )

    def kinds(self, *, may_lose: Sequence[tuple[float, float]] = ()) -> set[Kind]:
        verdict = judge(
            self.history, self.stored, self.replicas, failed=self.failed, may_lose=may_lose
        )
        return {one.kind for one in verdict.violations}


def lose_one(run: Run) -> None:
    """The last message of a queue is gone from the log, as after a fence that did not hold."""
    gone = run.stored.pop()
    run.history.delivered = [one for one in run.history.delivered if one.place != gone.place]


def lose_one_in_the_middle(run: Run) -> None:
    del run.stored[30]


def store_one_twice(run: Run) -> None:
    end = max(one.place.offset for one in run.stored if one.place.queue_id == 0) + 1
    twice = Stored(Place(0, end), run.stored[0].body, 0)
    run.stored.append(twice)
    run.history.delivered.append(Delivered(twice.place, twice.body, 100.0))


def swap_two(run: Run) -> None:
    """Two messages of one lane in the wrong order, acknowledged and delivered where they lie."""
    first, second = (
        index
        for index, one in enumerate(run.stored)
        if one.body.startswith((b"p0|0|3|", b"p0|0|4|"))
    )
    one, other = run.stored[first], run.stored[second]
    run.stored[first] = replace(one, body=other.body)
    run.stored[second] = replace(other, body=one.body)
    bodies = {stored.place: stored.body for stored in run.stored}
    run.history.delivered = [
        replace(seen, body=bodies[seen.place]) for seen in run.history.delivered
    ]
    offsets = {3: other.place.offset, 4: one.place.offset}
    run.history.acknowledged = [
        replace(ack, offset=offsets.get(ack.number, ack.offset)) if ack.lane == LANES[0] else ack
        for ack in run.history.acknowledged
    ]


def acknowledge_elsewhere(run: Run) -> None:
    run.history.acknowledged[7] = replace(run.history.acknowledged[7], offset=0)


def move_an_offset_back(run: Run) -> None:
    run.history.committed.append(Committed(0, 3, 1, True, 1_000.0))


def move_an_offset_back_on_one_slave(run: Run) -> None:
    run.history.committed += [
        Committed(0, 9, 2, False, 1_000.0),
        Committed(0, 8, 2, False, 1_001.0),
    ]


def commit_what_nobody_saw(run: Run) -> None:
    run.history.committed.append(Committed(1, MESSAGES + 5, 0, True, 1_000.0))


def flip_one_byte(run: Run) -> None:
    log = bytearray(run.replicas["replica 1"])
    log[len(log) // 2] ^= 1
    run.replicas["replica 1"] = bytes(log)


def cut_a_replica(run: Run) -> None:
    run.replicas["replica 1"] = run.replicas["replica 1"][:-1]


def show_what_is_cut_later(run: Run) -> None:
    """A stale master showed a message that the group's log never had."""
    place = Place(0, 2 * MESSAGES)
    run.history.delivered.append(Delivered(place, b"p0|0|19|stale", 200.0))


def show_another_body(run: Run) -> None:
    run.history.delivered[5] = replace(run.history.delivered[5], body=b"p0|0|1|other")


def deliver_all_but_one(run: Run) -> None:
    del run.history.delivered[11]


def invent_one(run: Run) -> None:
    place = Place(1, MESSAGES)
    body = body_of(LANES[2], MESSAGES, b"")
    run.stored.append(Stored(place, body, 0))
    run.history.delivered.append(Delivered(place, body, 200.0))


def bring_one_early(run: Run) -> None:
    run.add_later()
    run.stored[-3] = replace(run.stored[-3], stored_ms=run.stored[-3].stored_ms - 1)


def bring_one_twice(run: Run) -> None:
    run.add_later()
    twice = replace(run.stored[-1], place=Place(LATER.queue_id, MESSAGES), stored_ms=2_000)
    run.stored.append(twice)
    run.history.delivered.append(Delivered(twice.place, twice.body, 101.0))


def never_bring_one(run: Run) -> None:
    run.add_later()
    lose_one(run)


def have_one_come_again_twice(run: Run) -> None:
    run.add_failing()
    assert run.failed is not None
    run.failed = replace(run.failed, attempts=[*run.failed.attempts, run.failed.attempts[2]])


def never_have_one_come_again(run: Run) -> None:
    run.add_failing()
    assert run.failed is not None
    run.failed = replace(run.failed, attempts=run.failed.attempts[:-1])


def have_one_come_with_fewer_attempts(run: Run) -> None:
    run.add_failing()
    assert run.failed is not None
    name, times = run.failed.attempts[-1]
    run.failed = replace(run.failed, attempts=[*run.failed.attempts[:-1], (name, times - 1)])


def lose_a_dead_letter(run: Run) -> None:
    run.add_failing()
    assert run.failed is not None
    run.failed = replace(run.failed, dead_letters=run.failed.dead_letters[1:])


def bury_one_twice(run: Run) -> None:
    run.add_failing()
    assert run.failed is not None
    letters = run.failed.dead_letters
    run.failed = replace(run.failed, dead_letters=[*letters, letters[0]])


def bury_one_that_was_handled(run: Run) -> None:
    run.add_failing()
    assert run.failed is not None
    run.failed = replace(run.failed, dead_letters=[*run.failed.dead_letters, (FAILING, 0)])


DOCTORS: list[tuple[Callable[[Run], None], set[Kind]]] = [
    (lose_one, {Kind.LOST}),
    (lose_one_in_the_middle, {Kind.LOST, Kind.GAP, Kind.SEEN_AND_CUT}),
    (store_one_twice, {Kind.DUPLICATED}),
    (swap_two, {Kind.REORDERED}),
    (acknowledge_elsewhere, {Kind.MOVED}),
    (move_an_offset_back, {Kind.OFFSET_BACK}),
    (move_an_offset_back_on_one_slave, {Kind.OFFSET_BACK}),
    (commit_what_nobody_saw, {Kind.OFFSET_AHEAD}),
    (flip_one_byte, {Kind.REPLICAS_DIFFER}),
    (cut_a_replica, {Kind.REPLICAS_DIFFER}),
    (show_what_is_cut_later, {Kind.SEEN_AND_CUT}),
    (show_another_body, {Kind.SEEN_AND_CUT}),
    (deliver_all_but_one, {Kind.NOT_DELIVERED}),
    (invent_one, {Kind.INVENTED}),
    (bring_one_early, {Kind.EARLY}),
    (bring_one_twice, {Kind.DUPLICATED}),
    (never_bring_one, {Kind.LOST}),
    (have_one_come_again_twice, {Kind.RETRIED}),
    (never_have_one_come_again, {Kind.RETRIED}),
    (have_one_come_with_fewer_attempts, {Kind.RETRIED}),
    (lose_a_dead_letter, {Kind.DEAD_LETTERS}),
    (bury_one_twice, {Kind.DEAD_LETTERS}),
    (bury_one_that_was_handled, {Kind.DEAD_LETTERS}),
]


def test_a_run_in_which_all_went_well_has_no_violation() -> None:
    assert Run().kinds() == set()


def test_what_arrives_later_comes_in_the_order_of_its_times() -> None:
    run = Run()
    run.add_later()
    assert run.kinds() == set()


def test_what_fails_comes_again_as_often_as_it_fails_and_is_one_dead_letter() -> None:
    run = Run()
    run.add_failing()
    assert run.kinds() == set()


@pytest.mark.parametrize(("doctor", "found"), DOCTORS, ids=lambda one: getattr(one, "__name__", ""))
def test_one_broken_promise_is_found_and_named(
    doctor: Callable[[Run], None], found: set[Kind]
) -> None:
    run = Run()
    doctor(run)
    assert run.kinds() == found


def test_every_kind_of_violation_can_be_found() -> None:
    assert set().union(*(found for _, found in DOCTORS)) == set(Kind)


def test_what_a_cut_off_master_acknowledged_alone_may_be_lost_and_nothing_else() -> None:
    run = Run()
    lose_one(run)
    cut_off_s = (MESSAGES * len(LANES) - 0.1, MESSAGES * len(LANES) + 0.1)
    assert run.kinds(may_lose=[cut_off_s]) == set()
    assert run.kinds(may_lose=[(0.0, 1.0)]) == {Kind.LOST}
    assert lost(run.history, run.stored) == [(LANES[2], MESSAGES - 1)]
    show_what_is_cut_later(run)
    assert run.kinds(may_lose=[cut_off_s]) == {Kind.SEEN_AND_CUT}


def test_the_pause_counts_from_the_fault_to_what_was_sent_and_acknowledged_after_it() -> None:
    history = History()
    lane = LANES[0]
    history.acknowledged += [
        Acknowledged(lane, 0, 0, 0.9, 1.1),
        Acknowledged(lane, 1, 1, 1.2, 3.5),
        Acknowledged(lane, 2, 2, 1.3, 3.6),
    ]
    assert history.pause_s(1.0) == 2.5
    assert history.pause_s(2.0) is None
    assert history.gap_s(1.0, 4.0) == pytest.approx(2.4)
