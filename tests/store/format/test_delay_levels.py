"""Delay levels: the option as Apache writes it, and what a level stands for."""

from __future__ import annotations

import pytest

from aerobee.store.format.delay_levels import DelayLevels, DelayLevelsIllegal

S, M, H, D = 1_000, 60_000, 3_600_000, 86_400_000


def test_apaches_default_has_eighteen_levels() -> None:
    levels = DelayLevels.parse()
    assert len(levels) == 18
    assert [levels.delay_ms(level) for level in (1, 3, 4, 5, 14, 18)] == [
        *(1 * S, 10 * S, 30 * S, 1 * M, 10 * M, 2 * H)
    ]


def test_each_unit_is_known() -> None:
    assert DelayLevels.parse("1s 5m  2h 1d ").delays_ms == (1 * S, 5 * M, 2 * H, 1 * D)


@pytest.mark.parametrize("word", ["1", "s", "1x", "-1s", "1.5s", "1S", "١s", "9999999999s"])
def test_what_is_no_level_is_refused_with_its_place_and_an_example(word: str) -> None:
    with pytest.raises(DelayLevelsIllegal, match=f"level 2 is '{word}'.* such as 30s"):
        DelayLevels.parse(f"1s {word} 3s")


def test_no_level_at_all_is_refused() -> None:
    with pytest.raises(DelayLevelsIllegal, match="no delay level"):
        DelayLevels.parse(" ")
    with pytest.raises(DelayLevelsIllegal, match="1001 delay levels"):
        DelayLevels.parse("1s " * 1_001)


def test_a_level_that_is_too_high_waits_as_long_as_the_highest() -> None:
    levels = DelayLevels.parse("1s 5s")
    assert (levels.capped(1), levels.capped(2), levels.capped(99)) == (1, 2, 2)
    assert levels.delay_ms(99) == 5 * S


@pytest.mark.parametrize(
    ("delay_ms", "level"), [(-1, 1), (0, 1), (1 * S, 1), (1 * S + 1, 2), (2 * H, 18), (3 * H, None)]
)
def test_the_level_of_a_time_waits_at_least_so_long(delay_ms: int, level: int | None) -> None:
    assert DelayLevels.parse().level_of(delay_ms) == level


def test_levels_need_not_rise() -> None:
    levels = DelayLevels.parse("1h 10s 1m")
    assert levels.level_of(5 * S) == 2
    assert levels.level_of(20 * S) == 3
    assert levels.level_of(2 * M) == 1
