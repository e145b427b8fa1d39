"""Readers far behind: what is brought in ahead of them and what is given back behind them."""

from __future__ import annotations

import pytest

from aerobee.store.engine.log import catch_up as catch_up_module
from aerobee.store.engine.log.catch_up import (
    AHEAD_BYTES,
    EVICTION_BYTES_MIN,
    IDLE_S,
    MIB,
    RANGES_MAX,
    READERS_MAX,
    CatchUp,
    CatchUps,
)

FAR = 1 << 40


def walk(
    catch_ups: CatchUps, name: str, start: int, end: int, *, cold: bool = True, step: int = MIB
) -> CatchUp:
    """Read [start, end) in steps; only the first has to wait for the disk."""
    catch_up = catch_ups.get_or_create(name, 0.0)
    for position in range(start, end, step):
        was_cold = cold and position == start
        catch_ups.has_read(catch_up, position, position + step, step, was_cold=was_cold)
    return catch_up


def test_what_a_lonely_reader_has_passed_is_given_back_once() -> None:
    catch_ups = CatchUps()
    walk(catch_ups, "a", 0, 10 * MIB)
    assert catch_ups.take_passed(FAR) == [(0, 10 * MIB)]
    assert catch_ups.take_passed(FAR) == []
    walk(catch_ups, "a", 10 * MIB, 15 * MIB)
    assert catch_ups.take_passed(FAR) == [(10 * MIB, 15 * MIB)]


def test_nothing_is_given_back_that_another_reader_is_about_to_read() -> None:
    catch_ups = CatchUps()
    behind = walk(catch_ups, "behind", 0, 2 * MIB)
    walk(catch_ups, "ahead", 0, 50 * MIB)
    assert catch_ups.take_passed(FAR) == []
    catch_ups.has_read(behind, 2 * MIB, 20 * MIB, 18 * MIB, was_cold=False)
    assert catch_ups.take_passed(FAR) == [(0, 20 * MIB)]
    catch_ups.forget("behind")
    assert catch_ups.take_passed(FAR) == [(20 * MIB, 50 * MIB)]


def test_a_reader_that_found_everything_in_memory_holds_others_back_too() -> None:
    catch_ups = CatchUps()
    walk(catch_ups, "warm", 0, 1 * MIB, cold=False)
    walk(catch_ups, "cold", 0, 50 * MIB)
    assert catch_ups.take_passed(FAR) == []


def test_what_was_in_memory_before_stays() -> None:
    catch_ups = CatchUps()
    walk(catch_ups, "a", 0, 50 * MIB, cold=False)
    assert catch_ups.take_passed(FAR) == []


def test_nothing_near_the_end_is_given_back() -> None:
    catch_ups = CatchUps()
    walk(catch_ups, "a", 0, 50 * MIB)
    assert catch_ups.take_passed(20 * MIB) == [(0, 20 * MIB)]
    assert catch_ups.take_passed(20 * MIB) == []
    assert catch_ups.take_passed(-5) == []


def test_an_idle_reader_is_forgotten() -> None:
    catch_ups = CatchUps()
    walk(catch_ups, "asleep", 0, 1 * MIB)
    walk(catch_ups, "awake", 0, 9 * MIB)
    catch_ups.get_or_create("awake", IDLE_S)
    catch_ups.tidy(IDLE_S, 0)
    assert catch_ups.get("asleep") is None
    assert catch_ups.take_passed(FAR) == [(0, 9 * MIB)]


def test_ranges_below_the_log_are_forgotten() -> None:
    catch_ups = CatchUps()
    walk(catch_ups, "a", 0, 9 * MIB)
    catch_ups.tidy(0.0, 16 * MIB)
    assert catch_ups.take_passed(FAR) == []


def known(catch_ups: CatchUps) -> int:
    """Readers of which more is known than that they are behind."""
    return sum(catch_ups.get(f"r{number}") is not None for number in range(2 * READERS_MAX))


def test_memory_stays_bounded_and_too_many_readers_give_nothing_back() -> None:
    catch_ups = CatchUps()
    for number in range(READERS_MAX + 10):
        walk(catch_ups, f"r{number}", number * 10 * MIB, number * 10 * MIB + 5 * MIB)
    assert len(catch_ups) == READERS_MAX + 10
    assert known(catch_ups) == READERS_MAX
    assert catch_ups.take_passed(FAR) == []
    lonely = CatchUps()
    reader = lonely.get_or_create("a", 0.0)
    for number in range(RANGES_MAX + 50):
        start = number * 20 * MIB
        lonely.has_read(reader, start, start + 9 * MIB, 9 * MIB, was_cold=True)
    assert len(lonely.take_passed(FAR)) == RANGES_MAX


def test_all_who_are_behind_are_known_to_be_however_many_they_are() -> None:
    catch_ups = CatchUps()
    names = [f"r{number}" for number in range(20 * READERS_MAX)]
    for name in names:
        walk(catch_ups, name, 0, MIB)
    assert all(name in catch_ups for name in names)
    catch_ups.forget(names[0])
    assert names[0] not in catch_ups
    catch_ups.get_or_create(names[1], IDLE_S)
    catch_ups.tidy(IDLE_S, 0)
    assert [name for name in names if name in catch_ups] == [names[1]]


def test_who_read_longest_ago_is_forgotten_when_too_many_are_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catch_up_module, "BEHIND_MAX", 10)
    catch_ups = CatchUps()
    for number in range(15):
        walk(catch_ups, f"r{number}", 0, MIB)
    assert len(catch_ups) == known(catch_ups) == 10
    assert "r4" not in catch_ups
    assert "r5" in catch_ups


def test_with_so_many_behind_that_places_are_unknown_nothing_is_given_back_until_they_read() -> (
    None
):
    catch_ups = CatchUps()
    for number in range(READERS_MAX + 1):
        walk(catch_ups, f"r{number}", 0, 10 * MIB)
    assert catch_ups.take_passed(FAR) == []
    catch_ups.forget(f"r{READERS_MAX}")
    assert catch_ups.take_passed(FAR) == []  # where r0 is, nobody knows
    walk(catch_ups, "r0", 10 * MIB, 11 * MIB)
    assert catch_ups.take_passed(FAR) == [(0, 10 * MIB)]


def test_reading_ahead_stays_a_bounded_way_in_front_and_names_nothing_twice() -> None:
    catch_ups = CatchUps()
    reader = catch_ups.get_or_create("a", 0.0)
    brought_end = 0
    for position in range(0, 100 * MIB, MIB):
        size = MIB
        catch_ups.has_read(reader, position, position + size, size, was_cold=position == 0)
        ahead = reader.take_ahead()
        if ahead is not None:
            assert brought_end in (0, ahead[0])
            assert ahead[1] <= reader.position + AHEAD_BYTES
            brought_end = ahead[1]
        assert reader.position < brought_end


def test_only_a_reader_that_wants_most_of_what_it_passes_gets_it_ahead() -> None:
    catch_ups = CatchUps()
    sparse = catch_ups.get_or_create("sparse", 0.0)
    catch_ups.has_read(sparse, 0, 10 * MIB, 1 * MIB, was_cold=True)
    assert sparse.take_ahead() is None
    warm = walk(catch_ups, "warm", 0, 4 * MIB, cold=False)
    assert warm.take_ahead() is None


def test_a_reader_that_jumps_is_served_ahead_at_its_new_place() -> None:
    catch_ups = CatchUps()
    reader = walk(catch_ups, "a", 50 * MIB, 60 * MIB)
    assert reader.take_ahead() is not None
    catch_ups.has_read(reader, 0, MIB, MIB, was_cold=True)
    assert reader.take_ahead() == (MIB, MIB + AHEAD_BYTES)


def test_small_ranges_wait_until_they_are_worth_it() -> None:
    catch_ups = CatchUps()
    walk(catch_ups, "a", 0, EVICTION_BYTES_MIN - MIB)
    assert catch_ups.take_passed(FAR) == []
    walk(catch_ups, "a", EVICTION_BYTES_MIN - MIB, EVICTION_BYTES_MIN)
    assert catch_ups.take_passed(FAR) == [(0, EVICTION_BYTES_MIN)]
