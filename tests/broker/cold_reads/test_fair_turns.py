"""Turns among readers of a slow disk: fair in bytes, bounded, none left behind."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.cold_reads.fair_turns import QUANTUM_BYTES, FairTurns

KIB = 1024


def run_all(turns: FairTurns[str], count: int) -> list[str]:
    """The readers in the order in which single jobs get their turn, one after the other."""
    order = []
    for _ in range(count):
        turn = turns.next()
        assert turn is not None
        order.append(turn[0])
        turns.done(turn[0])
    return order


def test_jobs_of_one_reader_keep_their_order() -> None:
    turns: FairTurns[int] = FairTurns(1)
    for job in range(5):
        turns.add("a", job, 100)
    got = []
    while (turn := turns.next()) is not None:
        got.append(turn[1])
        turns.done(turn[0])
    assert got == [0, 1, 2, 3, 4]
    assert (turns.running, turns.waiting) == (0, 0)


def test_a_reader_with_a_thousand_jobs_does_not_delay_one_that_comes_later() -> None:
    turns: FairTurns[str] = FairTurns(1)
    for number in range(1_000):
        turns.add("catch-up", f"old {number}", QUANTUM_BYTES)
    run_all(turns, 10)
    turns.add("other", "wanted now", 4 * KIB)
    assert "other" in run_all(turns, 2)


def test_readers_get_bytes_and_not_turns_in_equal_parts() -> None:
    turns: FairTurns[str] = FairTurns(1)
    for number in range(400):
        turns.add("large", f"l{number}", 1024 * KIB)
        turns.add("small", f"s{number}", 64 * KIB)
    got = Counter(run_all(turns, 170))
    large, small = got["large"] * 1024, got["small"] * 64
    assert 0.8 < large / small < 1.25


def test_one_reader_leaves_a_place_for_others() -> None:
    turns: FairTurns[str] = FairTurns(4)
    for number in range(10):
        turns.add("catch-up", f"old {number}", 100)
    started = [turns.next() for _ in range(4)]
    assert [turn[0] for turn in started if turn is not None] == ["catch-up"] * 3
    assert started[3] is None
    turns.add("other", "wanted now", 100)
    assert turns.next() == ("other", "wanted now")


def test_with_one_place_a_reader_may_have_it() -> None:
    turns: FairTurns[str] = FairTurns(1)
    turns.add("a", "job", 100)
    assert turns.next() == ("a", "job")
    assert turns.next() is None


def test_a_job_that_is_not_wanted_any_more_never_starts() -> None:
    turns: FairTurns[str] = FairTurns(2)
    turns.add("a", "first", 100)
    turns.add("a", "second", 200)
    turns.remove("a", "first")
    assert turns.waiting_bytes("a") == 200
    assert turns.next() == ("a", "second")
    turns.remove("a", "second")  # it runs: nothing to take back
    turns.done("a")
    turns.add("b", "only", 100)
    turns.remove("b", "only")
    assert turns.next() is None
    assert (turns.running, turns.waiting, turns.waiting_bytes("b")) == (0, 0, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(1, 4 * QUANTUM_BYTES), st.booleans()),
        max_size=60,
    ),
    st.integers(1, 4),
)
def test_every_job_runs_once_within_the_bounds(
    steps: list[tuple[str, int, bool]], running_max: int
) -> None:
    turns: FairTurns[int] = FairTurns(running_max)
    added: list[int] = []
    started: list[int] = []
    running: list[str] = []

    def start_all() -> None:
        while (turn := turns.next()) is not None:
            running.append(turn[0])
            started.append(turn[1])
            assert len(running) == turns.running <= running_max
            assert all(count <= max(1, running_max - 1) for count in Counter(running).values())

    for number, (reader, size, ends_one) in enumerate(steps):
        turns.add(reader, number, size)
        added.append(number)
        start_all()
        if ends_one and running:
            turns.done(running.pop(0))
            start_all()
    while running:
        turns.done(running.pop(0))
        start_all()
    assert sorted(started) == added
    assert turns.waiting == 0


def test_a_reader_may_be_held_to_fewer_jobs_at_once() -> None:
    turns: FairTurns[int] = FairTurns(4, {"held": 2})
    for job in range(5):
        turns.add("held", job, 100)
    assert [turns.next() for _ in range(3)] == [("held", 0), ("held", 1), None]
    turns.add("other", 9, 100)
    assert turns.next() == ("other", 9)
    assert turns.next() is None
    turns.done("held")
    assert turns.next() == ("held", 2)
