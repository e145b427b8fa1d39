"""Segments go from a real folder: which, when, what readers see, what is counted."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import MessageNotFound, NotWritable
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.queues.reading import GetStatus
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.retention.retention_ledger import local_hour
from aerobee.store.engine.retention.retention_policy import PERIODIC, CleanRequest, DiskSpace
from aerobee.store.engine.retention.retention_statistics import UnreadRemoval
from aerobee.store.engine.retention.unread_search import QueueReaders
from aerobee.store.engine.statistics import StoreState
from tests.support.retention import (
    COMMAND,
    COMMAND_UNREAD,
    RESERVED_MS,
    RETAINED,
    clean_here,
    expire,
    fill,
    finish,
    open_retained,
    roomy_disk,
    settle,
    take_removal,
    write_times,
)
from tests.support.stores import (
    SMALL,
    append,
    check_agreement,
    flush,
    locate,
    log_records,
    open_store,
    read_queue,
)

HOUR_MS = 3_600_000


def config(**changes: object) -> StoreConfig:
    return replace(SMALL, retention=RetentionConfig(**changes))  # type: ignore[arg-type]


def segment_names(root: Path) -> list[str]:
    return sorted(os.listdir(root / "commitlog"))


def test_expired_segments_go_at_their_hour_and_the_active_one_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    hours = config(delete_when=str(local_hour(clock.now_ms())))
    store = open_retained(tmp_path, clock, hours)
    fill(store, 23)
    settle(store, clock)
    before = store.log.segments()
    assert clean_here(store.retention) == []
    expire(tmp_path, clock)
    removed = clean_here(store.retention)
    assert [segment.name for segment in removed] == [segment.name for segment in before[:-1]]
    assert segment_names(tmp_path) == [before[-1].name]
    assert store.min_offset == before[-1].base
    check_agreement(store)
    statistics = store.statistics().retention
    assert statistics.removed_segments == len(before) - 1
    assert statistics.removed_bytes == (len(before) - 1) * SMALL.segment_bytes
    assert statistics.removed_unread == ()


def test_at_another_hour_expired_segments_stay_and_say_so(tmp_path: Path) -> None:
    clock = ManualClock()
    hour = (local_hour(clock.now_ms()) + 3) % 24
    store = open_retained(tmp_path, clock, config(delete_when=str(hour)))
    fill(store, 23)
    settle(store, clock)
    expire(tmp_path, clock)
    assert clean_here(store.retention) == []
    assert str(hour) in store.retention.kept_because
    assert clean_here(store.retention, request=COMMAND)
    assert store.retention.kept_because == ""


def test_the_first_segment_that_stays_ends_the_run(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    expire(tmp_path, clock)
    second = tmp_path / "commitlog" / segment_names(tmp_path)[1]
    os.utime(second, (clock.now_ms() / 1_000, clock.now_ms() / 1_000))
    assert len(clean_here(store.retention, request=COMMAND)) == 1


def test_one_run_removes_no_more_than_it_was_told(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    expire(tmp_path, clock)
    assert len(clean_here(store.retention, request=COMMAND, segments_max=2)) == 2


def test_readers_of_what_went_are_told_and_go_on_at_the_new_minimum(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    expire(tmp_path, clock)
    first = locate(store, "Orders", 0, 0, max_messages=1, max_bytes=1)
    removal = take_removal(store)
    assert removal is not None
    # In memory the log begins later already; the queue does not know yet.
    with pytest.raises(MessageNotFound):
        store.log.read(first.runs)
    located = locate(store, "Orders", 0, 0, max_messages=1, max_bytes=1)
    assert located.status is GetStatus.MESSAGE_WAS_REMOVING
    removal.run()
    assert finish(store, removal) is not None
    located = locate(store, "Orders", 0, 0, max_messages=1, max_bytes=1)
    assert located.status is GetStatus.OFFSET_TOO_SMALL
    bounds = store.queues.bounds("Orders", 0)
    assert located.next_offset == bounds.min_offset > 0
    kept = read_queue(store, "Orders", 0)
    assert len(kept) == bounds.max_offset - bounds.min_offset


def test_queue_files_below_the_minimum_go_and_the_last_one_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 60, queues=1)
    append(store, "Rare", 3, b"one")
    fill(store, 60, queues=1)
    settle(store, clock)
    expire(tmp_path, clock)
    clean_here(store.retention, request=COMMAND, segments_max=1_000)
    bounds = store.queues.bounds("Orders", 0)
    first_file = sorted(os.listdir(tmp_path / "consumequeue/Orders/0"))[0]
    assert int(first_file) // 20 <= bounds.min_offset < int(first_file) // 20 + 10
    # A queue without messages goes on counting where it was.
    rare = store.queues.bounds("Rare", 3)
    assert (rare.min_offset, rare.max_offset) == (1, 1)
    assert append(store, "Rare", 3, b"two").base_queue_offset == 1
    assert read_queue(store, "Rare", 3) == [b"two"]
    store.close()
    store = open_retained(tmp_path, clock)
    assert store.recovery.rebuilt_queues == ()
    assert read_queue(store, "Rare", 3) == [b"two"]
    assert store.queues.bounds("Orders", 0) == bounds
    store.close()


def test_a_segment_stays_until_its_queue_entries_are_in_their_files(tmp_path: Path) -> None:
    """The next start could not know how far the queues had come."""
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    flush(store, checkpoint=False)
    expire(tmp_path, clock)
    assert clean_here(store.retention, request=COMMAND) == []
    assert "places in their queues are not on the disk yet" in store.retention.kept_because
    settle(store, clock)
    assert clean_here(store.retention, request=COMMAND)


def test_a_segment_stays_until_something_of_the_next_one_is_on_the_disk(tmp_path: Path) -> None:
    """A power failure would leave no log at all."""
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    while len(store.log.segments()) < 2:
        settle(store, clock)
        fill(store, 1)
    expire(tmp_path, clock)
    assert clean_here(store.retention, request=COMMAND) == []
    assert "what follows it in the log is not on the disk yet" in store.retention.kept_because
    flush(store, checkpoint=False)
    assert len(clean_here(store.retention, request=COMMAND)) == 1


def test_a_file_that_must_not_be_touched_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    expire(tmp_path, clock)
    before = [record.raw for record in log_records(store)]
    removal = take_removal(store)
    assert removal is not None
    removal.error = PermissionError(1, "Operation not permitted")
    assert finish(store, removal) is None
    assert "Operation not permitted" in store.retention.kept_because
    assert [record.raw for record in log_records(store)] == before
    check_agreement(store)
    assert clean_here(store.retention, request=COMMAND)


def test_a_segment_that_somebody_else_removed_counts_as_removed(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    expire(tmp_path, clock)
    removal = take_removal(store)
    assert removal is not None
    (tmp_path / removal.segment.path).unlink()
    removal.run()
    assert finish(store, removal) is not None
    check_agreement(store)


def test_a_closed_failed_or_read_only_store_is_left_alone(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    expire(tmp_path, clock)
    reading = open_store(tmp_path, clock=clock, read_only=True)
    assert reading.retention.take_survey(COMMAND) is None
    store.close()
    assert store.retention.take_survey(COMMAND) is None


# ---------------------------------------------------------------------- unread messages


def readers(offset: int, queue_id: int = 0, **more: object) -> QueueReaders:
    return QueueReaders("Orders", queue_id, {"billing": offset}, **more)  # type: ignore[arg-type]


def test_what_a_group_has_not_read_stays_and_the_reason_names_the_group(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 40)
    settle(store, clock)
    expire(tmp_path, clock)
    (record,) = (
        each for each in log_records(store) if each.queue_id == 0 and each.queue_offset == 9
    )
    clean_here(store.retention, [readers(9)], COMMAND)
    assert store.min_offset == record.physical_offset // 4096 * 4096 > 0
    assert store.queues.bounds("Orders", 0).min_offset <= 9
    for word in ("billing", "Orders", "queue 0", "offset 9", "--unread"):
        assert word in store.retention.kept_because
    assert store.statistics().retention.removed_unread == ()
    clean_here(store.retention, [readers(store.queues.bounds("Orders", 0).max_offset)], COMMAND)
    assert len(store.log.segments()) == 1
    assert store.retention.kept_because == ""


def test_a_command_for_unread_messages_counts_exactly_what_each_group_loses(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 40)
    settle(store, clock)
    expire(tmp_path, clock)
    groups = [
        QueueReaders("Orders", 0, {"behind": 2, "further": 11, "done": 20}),
        QueueReaders("Orders", 1, {"behind": 20}),
    ]
    removed = clean_here(store.retention, groups, COMMAND_UNREAD, segments_max=100)
    minimum = store.queues.bounds("Orders", 0).min_offset
    expected = (
        UnreadRemoval("behind", "Orders", 0, minimum - 2),
        UnreadRemoval("further", "Orders", 0, minimum - 11),
    )
    statistics = store.statistics().retention
    assert statistics.removed_unread == expected
    assert statistics.removed_unread_messages == sum(each.messages for each in expected)
    assert sum(segment.unread_messages for segment in removed) == 2 * minimum - 13


@pytest.mark.parametrize("ceiling", [1, 700, 3 * 4096, 3 * 4096 + 300, 20_000])
def test_unread_messages_above_the_topics_ceiling_hold_nothing(
    tmp_path: Path, ceiling: int
) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 40)
    settle(store, clock)
    expire(tmp_path, clock)
    positions = [each.physical_offset for each in log_records(store) if each.queue_id == 0]
    held_from = store.appended_end - ceiling
    first_held = next((each for each in positions if each >= held_from), positions[-1])
    clean_here(store.retention, [readers(0, keep_bytes_max=ceiling)], COMMAND, segments_max=100)
    # Every message within the ceiling is there, and the segments before them are gone.
    assert store.min_offset == first_held // 4096 * 4096
    bounds = store.queues.bounds("Orders", 0)
    assert bounds.min_offset == sum(position < store.min_offset for position in positions)
    assert store.statistics().retention.removed_unread == (
        UnreadRemoval("billing", "Orders", 0, bounds.min_offset),
    )


def test_a_ceiling_of_zero_holds_nothing_at_all(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 40)
    settle(store, clock)
    expire(tmp_path, clock)
    clean_here(store.retention, [readers(0, keep_bytes_max=0)], COMMAND, segments_max=100)
    assert len(store.log.segments()) == 1


def test_unread_messages_that_are_only_in_memory_yet_hold_their_segment(tmp_path: Path) -> None:
    """The search looks at entries in files and in memory alike."""
    clock = ManualClock()
    store = open_retained(tmp_path, clock, replace(SMALL, consume_queue_entries_per_file=1_000))
    fill(store, 23)
    settle(store, clock)
    fill(store, 23)
    expire(tmp_path, clock)
    last = store.queues.bounds("Orders", 0).max_offset - 1
    clean_here(store.retention, [readers(last)], COMMAND, segments_max=100)
    assert store.queues.bounds("Orders", 0).min_offset > 0
    assert "not on the disk yet" in store.retention.kept_because
    settle(store, clock)
    clean_here(store.retention, [readers(last)], COMMAND, segments_max=100)
    assert store.queues.bounds("Orders", 0).min_offset <= last


def test_readers_of_unknown_queues_and_beyond_the_end_hold_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 40)
    settle(store, clock)
    expire(tmp_path, clock)
    unknown = QueueReaders("Never", 0, {"billing": 0})
    clean_here(store.retention, [unknown, readers(99)], COMMAND, segments_max=100)
    assert len(store.log.segments()) == 1


# ---------------------------------------------------------------------- the disk


def test_above_the_force_percentage_unexpired_segments_go_one_by_one_until_there_is_room(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    disk = roomy_disk(tmp_path)
    store = open_store(disk, RETAINED, clock)
    fill(store, 60)
    settle(store, clock)
    write_times(tmp_path, clock.now_ms())
    count = len(store.log.segments())
    disk.free, disk.total = 14, 100
    assert clean_here(store.retention, segments_max=3)
    assert len(store.log.segments()) == count - 3
    disk.free = 15
    assert clean_here(store.retention) == []
    disk.free = 24
    assert clean_here(store.retention) == []
    forced = CleanRequest(commanded=True, force=True)
    assert len(clean_here(store.retention, request=forced, segments_max=2)) == 2
    disk.free = 25
    assert clean_here(store.retention, request=forced) == []


def test_a_full_disk_refuses_messages_rather_than_losing_unread_ones(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = roomy_disk(tmp_path)
    store = open_store(disk, RETAINED, clock)
    fill(store, 40)
    settle(store, clock)
    expire(tmp_path, clock)
    disk.free, disk.total = 9, 100
    assert clean_here(store.retention, [readers(0)]) == []
    assert store.state is StoreState.DISK_FULL
    with pytest.raises(NotWritable) as refused:
        append(store, "Orders", 0, b"a")
    for word in ("91.0 % full", "billing", "Orders", "queue 0", "reset", "clean --unread"):
        assert word in str(refused.value)
    assert str(refused.value) == store.retention.why_full
    # Somebody else frees a little, then enough.
    store.retention.observe(DiskSpace(14, 100))
    with pytest.raises(NotWritable):
        append(store, "Orders", 0, b"a")
    store.retention.observe(DiskSpace(15, 100))
    assert append(store, "Orders", 0, b"a").base_queue_offset == 20


def test_once_the_group_has_read_the_space_comes_back_by_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = roomy_disk(tmp_path)
    store = open_store(disk, RETAINED, clock)
    fill(store, 40)
    settle(store, clock)
    disk.free, disk.total = 9, 100
    clean_here(store.retention, [readers(0)])
    with pytest.raises(NotWritable):
        append(store, "Orders", 0, b"a")
    assert clean_here(store.retention, [readers(20)], segments_max=1)
    disk.free = 50
    clean_here(store.retention, [readers(20)])
    assert store.state is StoreState.WRITABLE
    append(store, "Orders", 0, b"a")


# ---------------------------------------------------------------------- clocks


def test_a_clock_that_jumps_an_hour_forward_removes_nothing_early(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    write_times(tmp_path, clock.now_ms() - RESERVED_MS + HOUR_MS // 2)
    clock.step_wall_ms(HOUR_MS)
    assert clean_here(store.retention, request=COMMAND) == []
    clock.step_wall_ms(-HOUR_MS)
    assert clean_here(store.retention, request=COMMAND) == []
    clock.advance_ms(HOUR_MS // 2 + 1_000)
    assert clean_here(store.retention, request=COMMAND)


def test_a_clock_that_jumps_an_hour_back_delays_by_that_hour_and_no_more(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    expire(tmp_path, clock)
    clock.step_wall_ms(-HOUR_MS)
    assert clean_here(store.retention, request=COMMAND) == []
    clock.advance_ms(HOUR_MS)
    assert clean_here(store.retention, request=COMMAND)


def test_segments_written_far_in_the_future_go_once_they_have_been_known_long_enough(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    write_times(tmp_path, clock.now_ms() + 1_000 * RESERVED_MS)
    assert clean_here(store.retention, request=COMMAND) == []
    clock.advance_ms(RESERVED_MS - 10_000)
    assert clean_here(store.retention, request=COMMAND) == []
    clock.advance_ms(20_000)
    assert clean_here(store.retention, request=COMMAND)


def test_a_start_with_the_clock_ahead_takes_nothing_that_was_just_written(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    write_times(tmp_path, clock.now_ms())
    store.close()
    clock.step_wall_ms(100 * HOUR_MS)
    store = open_retained(tmp_path, clock)
    assert clean_here(store.retention, request=COMMAND) == []
    clock.advance_ms(23 * HOUR_MS)
    assert clean_here(store.retention, request=COMMAND) == []
    clock.advance_ms(2 * HOUR_MS)  # it has stood for a day
    assert clean_here(store.retention, request=COMMAND)
    store.close()


def test_a_segment_written_just_now_in_a_folder_of_last_year_is_young(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_retained(tmp_path, clock)
    fill(store, 23)
    settle(store, clock)
    write_times(tmp_path, clock.now_ms())
    store.close()
    clock.advance_ms(HOUR_MS)
    store = open_retained(tmp_path, clock)
    assert clean_here(store.retention, request=COMMAND) == []
    assert store.retention.take_survey(PERIODIC) is not None
    store.close()
