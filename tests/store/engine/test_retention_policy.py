"""When a segment may go, as tables; and what a clock that jumps may do to it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.retention.retention_policy import (
    PERIODIC,
    Cause,
    CleanRequest,
    DiskSpace,
    FullDisk,
    Occasion,
    RetentionPolicy,
    Verdict,
)
from aerobee.store.engine.retention.retention_statistics import (
    LOSSES_TOLD_MAX,
    RemovedSegment,
    RetentionCounters,
    UnreadRemoval,
)
from aerobee.store.engine.retention.steady_time import (
    STEP_BELIEVED_AFTER_S,
    SegmentAges,
    SteadyTime,
)
from aerobee.store.engine.retention.unread_search import QueueReaders, removed_unread

HOUR_MS = 3_600_000
OLD_MS = 72 * HOUR_MS + 1
YOUNG_MS = 72 * HOUR_MS
COMMAND = CleanRequest(commanded=True)
FORCED = CleanRequest(commanded=True, force=True)


def used(percent: float) -> DiskSpace:
    return DiskSpace(round(1_000 - percent * 10), 1_000)


def verdict(
    age_ms: int,
    *,
    hour: int = 12,
    space: DiskSpace | None = None,
    request: CleanRequest = PERIODIC,
    config: RetentionConfig | None = None,
) -> Verdict:
    policy = RetentionPolicy(config or RetentionConfig())
    return policy.judge(Occasion(hour, used(50) if space is None else space, request), age_ms)


@pytest.mark.parametrize(
    ("age_ms", "hour", "percent", "request_", "cause"),
    [
        (OLD_MS, 4, 50, PERIODIC, Cause.EXPIRED),
        (OLD_MS, 3, 50, PERIODIC, None),
        (OLD_MS, 5, 50, PERIODIC, None),
        (YOUNG_MS, 4, 50, PERIODIC, None),
        (OLD_MS, 12, 75, PERIODIC, None),
        (OLD_MS, 12, 75.1, PERIODIC, Cause.EXPIRED),
        (YOUNG_MS, 12, 85, PERIODIC, None),
        (YOUNG_MS, 12, 85.1, PERIODIC, Cause.DISK),
        (0, 12, 99, PERIODIC, Cause.DISK),
        (OLD_MS, 12, 85.1, PERIODIC, Cause.EXPIRED),
        (OLD_MS, 12, 10, COMMAND, Cause.EXPIRED),
        (YOUNG_MS, 12, 80, COMMAND, None),
        (YOUNG_MS, 12, 75, FORCED, None),
        (YOUNG_MS, 12, 75.1, FORCED, Cause.DISK),
    ],
)
def test_age_hour_disk_and_command_decide(
    age_ms: int, hour: int, percent: float, request_: CleanRequest, cause: Cause | None
) -> None:
    assert verdict(age_ms, hour=hour, space=used(percent), request=request_).cause is cause


def test_what_is_expired_and_stays_says_why_and_what_is_not_says_nothing() -> None:
    assert verdict(OLD_MS).kept_because == "expired segments are removed at the hours 04"
    assert verdict(YOUNG_MS) == Verdict(None)


def test_a_disk_that_was_not_measured_costs_nothing() -> None:
    assert verdict(YOUNG_MS, space=DiskSpace()).cause is None
    assert verdict(OLD_MS, hour=4, space=DiskSpace()).cause is Cause.EXPIRED


def test_without_force_a_full_disk_costs_expired_segments_only() -> None:
    config = RetentionConfig(force_enabled=False)
    assert verdict(YOUNG_MS, space=used(99), config=config).cause is None
    assert verdict(OLD_MS, space=used(99), config=config).cause is Cause.EXPIRED


def test_retention_that_is_off_removes_only_what_a_command_asks_for() -> None:
    config = RetentionConfig(enabled=False)
    assert verdict(OLD_MS, hour=4, space=used(99), config=config) == Verdict(None)
    assert verdict(OLD_MS, request=COMMAND, config=config).cause is Cause.EXPIRED


@pytest.mark.parametrize(
    ("text", "hours"),
    [("04", {4}), ("4;16", {4, 16}), ("0,23", {0, 23}), ("00;01;02", {0, 1, 2})],
)
def test_hours_are_read_as_apache_writes_them(text: str, hours: set[int]) -> None:
    assert RetentionConfig(delete_when=text).hours == hours


@pytest.mark.parametrize(
    "changes",
    [
        {"delete_when": "24"},
        {"delete_when": ""},
        {"delete_when": "4;"},
        {"file_reserved_hours": -1},
        {"disk_refuse_percent": 101},
        {"delete_files_max": 0},
        {"delete_pause_ms": -1},
        {"clean_interval_ms": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(changes))):
        RetentionConfig(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given_", "kept"),
    [((0, 0, 0), (10, 30, 35)), ((100, 100, 100), (95, 85, 90)), ((60, 70, 80), (60, 70, 80))],
)
def test_percentages_stay_within_apaches_limits(
    given_: tuple[int, int, int], kept: tuple[int, int, int]
) -> None:
    config = RetentionConfig(
        disk_used_percent_max=given_[0], disk_force_percent=given_[1], disk_refuse_percent=given_[2]
    )
    assert (
        config.expire_above_percent,
        config.force_above_percent,
        config.refuse_above_percent,
    ) == kept


def test_each_percentage_that_is_moved_is_named_with_what_is_used() -> None:
    assert RetentionConfig().moved_percentages() == []
    moved = RetentionConfig(disk_refuse_percent=98, disk_force_percent=20).moved_percentages()
    assert [sentence.split()[0] for sentence in moved] == [
        "store.retention.disk_force_percent",
        "store.retention.disk_refuse_percent",
    ]
    assert "98" in moved[1]
    assert moved[1].endswith(": 90 is used")


def test_a_full_disk_refuses_until_it_is_clearly_emptier() -> None:
    disk = FullDisk(RetentionConfig())
    seen = []
    for percent in (90, 90.1, 89, 85.1, 85, 90, 91):
        disk.measured(used(percent))
        seen.append(disk.is_full)
    assert seen == [False, True, True, True, False, False, True]
    assert "91.0 % full" in disk.describe("")
    assert disk.describe("group g holds it").endswith("; group g holds it")


def test_a_disk_that_refuses_below_the_force_percentage_resumes_there_too() -> None:
    disk = FullDisk(RetentionConfig(disk_refuse_percent=40, disk_force_percent=80))
    disk.measured(used(41))
    assert disk.is_full
    disk.measured(used(40))
    assert not disk.is_full


@given(
    percents=st.lists(st.integers(0, 100), min_size=1, max_size=30),
    force=st.integers(0, 100),
    refuse=st.integers(0, 100),
)
def test_above_the_refuse_percentage_nothing_is_ever_taken_and_below_force_always(
    percents: list[int], force: int, refuse: int
) -> None:
    config = RetentionConfig(disk_force_percent=force, disk_refuse_percent=refuse)
    disk = FullDisk(config)
    for percent in percents:
        disk.measured(used(percent))
        if percent > config.refuse_above_percent:
            assert disk.is_full
        elif percent <= config.force_above_percent:
            assert not disk.is_full


# ---------------------------------------------------------------------- counting


@given(
    committed=st.integers(0, 50),
    before=st.integers(0, 50),
    grown_by=st.integers(0, 50),
)
def test_what_a_group_lost_is_what_lay_between_its_offset_and_the_new_minimum(
    committed: int, before: int, grown_by: int
) -> None:
    after = before + grown_by
    readers = QueueReaders("t", 1, {"g": committed})
    lost = {offset for offset in range(before, after) if offset >= committed}
    found = removed_unread(readers, before, after)
    assert found == ([UnreadRemoval("g", "t", 1, len(lost))] if lost else [])


@given(committed=st.integers(0, 30), minimums=st.lists(st.integers(0, 30), min_size=2, max_size=6))
def test_losses_add_up_over_several_removals(committed: int, minimums: list[int]) -> None:
    minimums = sorted(minimums)
    readers = QueueReaders("t", 0, {"g": committed})

    def lost(before: int, after: int) -> int:
        return sum(each.messages for each in removed_unread(readers, before, after))

    steps = sum(lost(a, b) for a, b in itertools.pairwise(minimums))
    assert steps == lost(minimums[0], minimums[-1])


# ---------------------------------------------------------------------- clocks


def steady(clock: ManualClock) -> SteadyTime:
    return SteadyTime(clock.now_ms(), clock.monotonic_s())


def look(time: SteadyTime, clock: ManualClock) -> int:
    """Milliseconds between the believed time and the wall clock."""
    return time.now_ms(clock.now_ms(), clock.monotonic_s()) - clock.now_ms()


def test_time_that_passes_is_followed() -> None:
    clock = ManualClock()
    time = steady(clock)
    for _ in range(100):
        clock.advance_ms(10_000)
        clock.step_wall_ms(5)  # a clock that is slewed
        assert look(time, clock) == 0


def test_a_jump_of_an_hour_forward_ages_nothing_until_it_has_stood_for_a_day() -> None:
    clock = ManualClock()
    time = steady(clock)
    clock.step_wall_ms(HOUR_MS)
    for _ in range(int(STEP_BELIEVED_AFTER_S / 600) - 1):
        clock.advance_ms(600_000)
        assert look(time, clock) == -HOUR_MS
    clock.advance_ms(1_200_000)
    assert look(time, clock) == 0


def test_a_jump_of_an_hour_forward_and_back_leaves_no_trace() -> None:
    clock = ManualClock()
    time = steady(clock)
    clock.step_wall_ms(HOUR_MS)
    clock.advance_ms(10_000)
    assert look(time, clock) == -HOUR_MS
    clock.step_wall_ms(-HOUR_MS)
    clock.advance_ms(10_000)
    assert look(time, clock) == 0


def test_a_jump_back_counts_at_once_and_the_way_forward_again_takes_a_day() -> None:
    clock = ManualClock()
    time = steady(clock)
    clock.step_wall_ms(-HOUR_MS)
    assert look(time, clock) == 0
    clock.step_wall_ms(HOUR_MS)
    assert look(time, clock) == -HOUR_MS


@given(steps=st.lists(st.tuples(st.integers(0, 7_200_000), st.integers(-HOUR_MS, HOUR_MS))))
def test_believed_time_is_never_ahead_of_the_wall_clock(steps: list[tuple[int, int]]) -> None:
    clock = ManualClock()
    time = steady(clock)
    for elapsed_ms, step_ms in steps:
        clock.advance_ms(elapsed_ms)
        clock.step_wall_ms(step_ms)
        assert look(time, clock) <= 1


def test_a_clock_that_is_ahead_at_the_start_is_believed_a_day_at_first_and_whole_after_a_day() -> (
    None
):
    clock = ManualClock()
    seen_ms = clock.now_ms()
    clock.step_wall_ms(100 * HOUR_MS)
    time = SteadyTime(clock.now_ms(), clock.monotonic_s(), seen_ms)
    assert look(time, clock) == -76 * HOUR_MS
    for _ in range(int(STEP_BELIEVED_AFTER_S / 600) - 1):
        clock.advance_ms(600_000)
        assert look(time, clock) == -76 * HOUR_MS
    clock.advance_ms(600_000)
    assert look(time, clock) == 0


def test_a_clock_that_is_ahead_at_the_start_and_set_right_is_believed_at_once() -> None:
    clock = ManualClock()
    seen_ms = clock.now_ms()
    clock.step_wall_ms(100 * HOUR_MS)
    time = SteadyTime(clock.now_ms(), clock.monotonic_s(), seen_ms)
    clock.step_wall_ms(-99 * HOUR_MS)
    assert look(time, clock) == 0


def test_a_start_within_a_day_believes_the_clock_as_it_is() -> None:
    clock = ManualClock()
    time = SteadyTime(clock.now_ms(), clock.monotonic_s(), clock.now_ms() - 24 * HOUR_MS)
    assert look(time, clock) == 0
    ahead = SteadyTime(clock.now_ms(), clock.monotonic_s(), clock.now_ms() + HOUR_MS)
    assert look(ahead, clock) == 0


# ---------------------------------------------------------------------- counting


def segment_with(losses: list[UnreadRemoval]) -> RemovedSegment:
    return RemovedSegment("0", 0, 1, 1, Cause.DISK, tuple(losses))


def test_the_largest_losses_are_told_and_all_are_counted() -> None:
    counters = RetentionCounters()
    losses = [UnreadRemoval("g", f"t{number}", 0, number + 1) for number in range(25_000)]
    counters.add(segment_with(losses))
    assert counters.unread_messages == sum(range(25_001))
    assert counters.largest == tuple(reversed(losses[-LOSSES_TOLD_MAX:]))
    assert counters.largest is counters.largest  # not sorted again for every question
    counters.add(segment_with([UnreadRemoval("g", "t24999", 0, 5)]))
    assert counters.largest[0] == UnreadRemoval("g", "t24999", 0, 25_005)
    assert counters.unread_messages == sum(range(25_001)) + 5


def test_what_is_remembered_of_losses_is_bounded() -> None:
    counters = RetentionCounters()
    for part in range(30):
        counters.add(
            segment_with(
                [UnreadRemoval("g", f"t{part * 1_000 + each}", 0, 1) for each in range(1_000)]
            )
        )
    assert counters.unread_messages == 30_000
    assert len(counters) <= 10_000


# ---------------------------------------------------------------------- files of the future


def test_a_file_written_in_the_future_expires_by_the_time_it_has_been_known() -> None:
    clock = ManualClock()
    ages = SegmentAges()
    ages.know([0, 4096], clock.monotonic_s())
    written_ms = clock.now_ms() + 1_000 * HOUR_MS
    clock.advance_ms(71 * HOUR_MS)
    ages.know([0, 4096], clock.monotonic_s())
    clock.advance_ms(2 * HOUR_MS)
    now_ms, now_s = clock.now_ms(), clock.monotonic_s()
    assert ages.age_ms(0, written_ms, now_ms, now_s) == 73 * HOUR_MS
    assert ages.age_ms(0, now_ms - 80 * HOUR_MS, now_ms, now_s) == 80 * HOUR_MS
    ages.know([4096], now_s)
    assert ages.age_ms(4096, written_ms, now_ms, now_s) == 73 * HOUR_MS
