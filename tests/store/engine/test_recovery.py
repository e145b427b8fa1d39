"""Recovery of the log: exactly to the last whole record, and no further than may be lost."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.errors import StoreDamaged, StoreUnusable
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import RecoveryProgress
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.record import Record
from tests.support.fault_disk import FaultDisk
from tests.support.stores import (
    SMALL,
    append,
    batch_of,
    check_agreement,
    crashed_copy,
    flush,
    log_records,
    open_store,
    read_queue,
)

pytestmark = pytest.mark.many_files
FIRST = "0" * 20
CHUNKED = replace(SMALL, recovery_chunk_bytes=100)


def segment(root: Path, base: int = 0) -> Path:
    return root / "commitlog" / f"{base:020d}"


def alter(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Four messages in two queues, then kill -9; nothing was flushed."""
    store = open_store(tmp_path / "running")
    for number in range(4):
        store.append(batch_of("Orders", b"body %d" % number, tag="t"), queue_id=number % 2)
        store.confirm(store.appended_end)
    return crashed_copy(tmp_path / "running", tmp_path / "crashed")


@pytest.mark.parametrize(
    "fill", [lambda size: bytes(size), lambda size: b"\xff" * size, random.Random(7).randbytes]
)
def test_a_tail_torn_at_any_byte_is_cut_to_the_last_whole_record(
    crashed: Path, fill: Callable[[int], bytes]
) -> None:
    whole = segment(crashed).read_bytes()
    records = log_records(open_store(crashed, read_only=True))
    used = records[-1].physical_offset + records[-1].size
    for torn_at in range(records[2].physical_offset, used + 1):
        torn = whole[:torn_at] + fill(used + 50 - torn_at) + whole[used + 50 :]
        segment(crashed).write_bytes(torn)
        expected = []
        for record in records:
            # Only the properties have neither a length that must fit nor a checksum.
            checked_end = record.end - len(record.properties_bytes) + record.physical_offset
            if (
                torn[record.physical_offset : checked_end]
                != whole[record.physical_offset : checked_end]
            ):
                break
            expected.append(record.physical_offset)
        store = open_store(crashed, read_only=True)
        assert [record.physical_offset for record in log_records(store)] == expected, torn_at
        check_agreement(store)


def test_what_is_cut_is_zeroed_and_the_store_goes_on_from_there(crashed: Path) -> None:
    whole = segment(crashed).read_bytes()
    last = log_records(open_store(crashed, read_only=True))[-1]
    for torn_at in range(last.physical_offset + 4, last.physical_offset + last.size, 9):
        segment(crashed).write_bytes(whole[:torn_at] + b"\xee" * (4096 - torn_at))
        (crashed / "abort").touch()
        shutil.rmtree(crashed / "consumequeue", ignore_errors=True)
        (crashed / "checkpoint").unlink(missing_ok=True)
        store = open_store(crashed)
        kept = store.appended_end
        assert kept in (last.physical_offset, last.physical_offset + last.size)
        assert not any(segment(crashed).read_bytes()[kept:])
        assert store.recovery.cut_bytes == 4096 - kept
        assert any("cut off" in warning for warning in store.recovery.warnings)
        append(store, "Orders", 1, b"after")
        check_agreement(store)
        store.close()
        reopened = open_store(crashed)
        assert reopened.recovery.clean
        assert read_queue(reopened, "Orders", 1)[-1] == b"after"
        reopened.close()


def test_a_stale_record_behind_the_cut_does_not_come_back(crashed: Path) -> None:
    """After a cut in the middle, old records further on still look perfect: they must go."""
    records = log_records(open_store(crashed, read_only=True))
    alter(segment(crashed), records[1].physical_offset + 90, b"\xff")
    store = open_store(crashed)
    assert [record.body for record in log_records(store)] == [b"body 0"]
    append(store, "Orders", 1, b"body 1")  # ends where record 1 ended
    again = crashed_copy(crashed, crashed.parent / "again")
    assert [record.body for record in log_records(open_store(again))] == [b"body 0", b"body 1"]


@pytest.mark.parametrize("config", [SMALL, CHUNKED], ids=["large chunks", "small chunks"])
def test_everything_written_survives_kill_9_over_many_segments(
    tmp_path: Path, config: StoreConfig
) -> None:
    clock = ManualClock()
    store = open_store(tmp_path / "running", config, clock)
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    chance = random.Random(3)
    for number in range(120):
        body = chance.randbytes(chance.choice([0, 10, 300, 1500]))
        append(store, "Orders", number % 3, body)
        expected[number % 3].append(body)
        clock.advance_ms(700)
        if number % 10 == 0:
            flush(store)
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    recovered = open_store(crashed, config, clock)
    assert not recovered.recovery.clean
    assert recovered.recovery.scan_start > 0  # the checkpoint spares the older segments
    assert recovered.appended_end == recovered.flushed_end == store.appended_end
    for queue_id, bodies in expected.items():
        assert read_queue(recovered, "Orders", queue_id) == bodies
    check_agreement(recovered)


def test_a_blank_record_without_a_next_segment_is_cut_off(tmp_path: Path) -> None:
    store = open_store(tmp_path / "running")
    append(store, "Orders", 0, b"x" * 3000)
    end = store.appended_end
    append(store, "Orders", 0, b"y" * 3000)
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    segment(crashed, 4096).unlink()
    recovered = open_store(crashed)
    assert recovered.appended_end == end
    assert not any(segment(crashed).read_bytes()[end:])
    append(recovered, "Orders", 0, b"z" * 500)  # fits where the blank was
    assert [info.base for info in recovered.log.segments()] == [0]
    check_agreement(recovered)


def test_a_zero_segment_behind_the_active_one_is_dropped(crashed: Path) -> None:
    segment(crashed, 4096).write_bytes(bytes(4096))
    recovered = open_store(crashed)
    assert [info.base for info in recovered.log.segments()] == [0]
    assert not segment(crashed, 4096).exists()
    assert not recovered.recovery.warnings


def test_a_zero_segment_behind_a_sealed_one_becomes_the_active_one(tmp_path: Path) -> None:
    store = open_store(tmp_path / "running")
    append(store, "Orders", 0, b"x" * 3000)
    append(store, "Orders", 0, b"y" * 3000)
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    segment(crashed, 4096).write_bytes(bytes(4096))
    recovered = open_store(crashed)
    assert recovered.appended_end == 4096
    assert append(recovered, "Orders", 0, b"z" * 3000).base_physical_offset == 4096
    check_agreement(recovered)


@pytest.mark.parametrize("bases", [[4096], [4096, 8192]])
def test_empty_last_segment_files_are_removed(crashed: Path, bases: list[int]) -> None:
    for base in bases:
        segment(crashed, base).touch()
    assert open_store(crashed, read_only=True).appended_end > 0
    assert segment(crashed, 4096).exists()
    recovered = open_store(crashed)
    assert not any(segment(crashed, base).exists() for base in bases)
    assert len(log_records(recovered)) == 4


def test_a_new_folder_is_an_empty_store(tmp_path: Path) -> None:
    store = open_store(tmp_path / "deep" / "new")
    assert (store.min_offset, store.appended_end, store.queues.names()) == (0, 0, [])
    store.close()
    assert not (tmp_path / "deep/new/commitlog").exists()
    reopened = open_store(tmp_path / "deep" / "new")
    assert reopened.recovery.clean
    assert append(reopened, "Orders", 0, b"a").base_queue_offset == 0


def _small_records(root: Path) -> list[Record]:
    """A store of several segments, closed; several records lie in the last one."""
    store = open_store(root)
    for number in range(33):
        append(store, "Orders", number % 3, b"%d" % number * 200)
    records = log_records(store)
    store.close()
    return records


@pytest.mark.parametrize("read_only", [False, True])
def test_after_a_clean_stop_only_the_last_record_is_read(tmp_path: Path, read_only: bool) -> None:
    last = _small_records(tmp_path)[-1]
    for _ in range(2):
        reopened = open_store(tmp_path, read_only=read_only)
        assert reopened.recovery.clean
        assert reopened.recovery.scan_start == last.physical_offset
        assert reopened.recovery.scanned_records == 1
        assert reopened.recovery.dispatched_records == 0
        assert reopened.appended_end == last.physical_offset + last.size
        check_agreement(reopened)
        reopened.close()


def test_after_a_clean_stop_without_a_list_of_queues_the_last_segment_is_read(
    tmp_path: Path,
) -> None:
    last = _small_records(tmp_path)[-1]
    (tmp_path / "consumequeue.ends").unlink()
    reopened = open_store(tmp_path)
    assert reopened.recovery.clean
    assert reopened.recovery.scan_start == last.physical_offset // 4096 * 4096
    check_agreement(reopened)


def test_after_a_clean_stop_records_in_no_queue_are_found_behind_the_last_that_is_in_one(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    append(store, "Orders", 0, b"first")
    last_queued = store.appended_end
    append(store, "Orders", 0, b"in a queue")
    for _ in range(3):
        store.append(batch_of("Half", b"in none", sys_flag=4), queue_id=0)
        store.confirm(store.appended_end)
    end = store.appended_end
    store.close()
    reopened = open_store(tmp_path)
    assert reopened.recovery.scanned_records == 4
    assert reopened.recovery.scan_start == last_queued
    assert reopened.appended_end == end
    reopened.close()
    alter(segment(tmp_path), end - 200, b"\xff" * 200)
    with pytest.raises(StoreDamaged) as caught:
        open_store(tmp_path)
    assert last_queued < (caught.value.position or 0) < end


@pytest.mark.parametrize("behind", ["physic_msg_timestamp", "logics_msg_timestamp"])
def test_after_a_crash_the_log_is_read_from_the_older_of_the_checkpoints_times(
    tmp_path: Path, behind: str
) -> None:
    """Queues are older than the log where only they failed to be written."""
    clock = ManualClock()
    store = open_store(tmp_path / "running", clock=clock)
    for _ in range(6):
        append(store, "Orders", 0, bytes(3_000))
        clock.advance_ms(10_000)
    flush(store)
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    path = crashed / "checkpoint"
    checkpoint = Checkpoint.decode(path.read_bytes())
    older_ms = log_records(store)[3].store_timestamp_ms
    path.write_bytes(replace(checkpoint, **{behind: older_ms}).encode())
    # A checkpoint's times are true up to three seconds.
    assert open_store(crashed).recovery.scan_start == store.log.segments()[2].base


def test_all_that_recovery_serves_is_on_the_disk_then(tmp_path: Path) -> None:
    """Of several segments that were never flushed, what it found may be in the page cache only."""
    store = open_store(tmp_path / "running")
    for _ in range(4):
        append(store, "Orders", 0, bytes(3_000))
    disk = FaultDisk(crashed_copy(tmp_path / "running", tmp_path / "crashed"))
    recovered = open_store(disk)
    assert recovered.flushed_end == store.appended_end
    for segment in recovered.log.segments():
        assert ("datasync", f"commitlog/{segment.base:020d}") in disk.calls


def test_a_crash_right_after_a_clean_start_is_recovered_from_a_segments_start(
    tmp_path: Path,
) -> None:
    _small_records(tmp_path / "running")
    store = open_store(tmp_path / "running")
    append(store, "Orders", 0, b"after the start")
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    recovered = open_store(crashed)
    assert not recovered.recovery.clean
    assert recovered.recovery.scan_start % 4096 == 0
    assert log_records(recovered)[-1].body == b"after the start"
    check_agreement(recovered)


def test_progress_is_reported_in_order_and_ends_complete(tmp_path: Path) -> None:
    store = open_store(tmp_path / "running")
    for _ in range(5):
        append(store, "Orders", 0, b"x" * 2000)
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    seen: list[RecoveryProgress] = []
    MessageStore.open(RealDisk(crashed), ManualClock(), SMALL, on_progress=seen.append)
    done = [progress.bytes_done for progress in seen]
    assert len(done) > 2
    assert done == sorted(done)
    assert seen[-1].bytes_done == seen[-1].bytes_total


@pytest.mark.parametrize("checkpoint", [None, b"", b"short", bytes(4096), b"\xff" * 4096])
def test_any_checkpoint_will_do(crashed: Path, checkpoint: bytes | None) -> None:
    (crashed / "checkpoint").unlink()
    if checkpoint is not None:
        (crashed / "checkpoint").write_bytes(checkpoint)
    recovered = open_store(crashed)
    assert len(log_records(recovered)) == 4
    check_agreement(recovered)
    recovered.close()
    assert len((crashed / "checkpoint").read_bytes()) == 4096


# ---------------------------------------------------------------------------------- damage


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Three segments, closed cleanly."""
    store = open_store(tmp_path)
    for number in range(3):
        append(store, "Orders", 0, b"%d" % number * 2000)
    store.close()
    return tmp_path


def snapshot(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_damage_in_what_was_safely_on_disk_is_reported_and_nothing_is_changed(
    closed: Path,
) -> None:
    alter(segment(closed, 8192), 150, b"\xff")
    before = snapshot(closed)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="bad crc") as caught:
            open_store(closed)
        assert (caught.value.segment, caught.value.position) == (f"commitlog/{8192:020d}", 8192)
        assert snapshot(closed) == before
    with pytest.raises(StoreDamaged):
        open_store(closed, read_only=True)


def test_a_cut_of_damaged_data_is_the_operators_choice(closed: Path) -> None:
    alter(segment(closed, 8192), 150, b"\xff")
    store = open_store(closed, replace(SMALL, cut_damaged=True))
    assert read_queue(store, "Orders", 0) == [b"0" * 2000, b"1" * 2000]
    assert append(store, "Orders", 0, b"new").base_queue_offset == 2
    check_agreement(store)


@pytest.mark.parametrize("also_before", [False, True])
def test_damage_of_the_last_of_many_records_is_found_after_a_clean_stop(
    tmp_path: Path, also_before: bool
) -> None:
    records = _small_records(tmp_path)
    base = records[-1].physical_offset // 4096 * 4096
    in_last = [record for record in records if record.physical_offset >= base]
    damaged = in_last[-3:] if also_before else in_last[-1:]
    for record in damaged:
        alter(segment(tmp_path, base), record.physical_offset - base + 100, b"\xff")
    place = damaged[0].physical_offset
    with pytest.raises(StoreDamaged) as caught:
        open_store(tmp_path)
    assert caught.value.position == place
    store = open_store(tmp_path, replace(SMALL, cut_damaged=True))
    assert store.appended_end == place
    assert len(log_records(store)) == len(records) - len(damaged)
    check_agreement(store)


def test_a_segment_written_over_by_anothers_copy_is_reported(closed: Path) -> None:
    before = segment(closed, 8192).read_bytes()
    segment(closed, 8192).write_bytes(segment(closed, 4096).read_bytes())
    for crashed in (False, True):
        if crashed:
            (closed / "abort").touch()
        with pytest.raises(StoreDamaged, match="misplaced") as caught:
            open_store(closed)
        assert (caught.value.segment, caught.value.position) == (f"commitlog/{8192:020d}", 8192)
    segment(closed, 8192).write_bytes(before)
    check_agreement(open_store(closed))


def test_a_tail_of_records_of_another_place_is_cut(crashed: Path) -> None:
    store = open_store(crashed)
    records = log_records(store)
    store.close()
    (crashed / "abort").touch()
    whole = records[2].physical_offset
    (crashed / "checkpoint").unlink()
    content = segment(crashed).read_bytes()
    alter(segment(crashed), whole, content[:whole])
    recovered = open_store(crashed)
    assert recovered.appended_end == whole
    assert recovered.recovery.cut_bytes == whole
    assert len(log_records(recovered)) == 2
    check_agreement(recovered)


def test_damage_below_the_flushed_end_is_reported_after_a_crash_too(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path / "running", clock=clock)
    append(store, "Orders", 0, b"flushed")
    clock.advance_ms(5_000)
    flush(store)
    flushed_end = store.flushed_end
    append(store, "Orders", 0, b"unflushed")
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    torn = crashed_copy(crashed, tmp_path / "torn")
    alter(segment(torn), flushed_end + 90, b"\xff")
    assert open_store(torn).appended_end == flushed_end
    alter(segment(crashed), 90, b"\xff")
    with pytest.raises(StoreDamaged) as caught:
        open_store(crashed)
    assert caught.value.position == 0


def test_an_apache_store_closed_cleanly_is_judged_by_its_queues(closed: Path) -> None:
    """Apache's checkpoint has no flushed end; the queues say how far the log was whole."""
    known = Checkpoint.decode((closed / "checkpoint").read_bytes())
    (closed / "checkpoint").write_bytes(replace(known, confirm_physical_offset=0).encode())
    (closed / "consumequeue.ends").unlink()
    store = open_store(closed)
    append(store, "Orders", 1, b"in the same segment")
    store.close()
    (closed / "checkpoint").write_bytes(replace(known, confirm_physical_offset=0).encode())
    alter(segment(closed, 8192), 150, b"\xff")
    with pytest.raises(StoreDamaged):
        open_store(closed)


def test_missing_segments_are_reported(closed: Path) -> None:
    segment(closed, 4096).rename(closed / "away")
    with pytest.raises(StoreUnusable, match="hole"):
        open_store(closed)
    (closed / "away").rename(segment(closed, 4096))
    segment(closed, 8192).rename(closed / "away")
    with pytest.raises(StoreDamaged):
        open_store(closed)
    shutil.rmtree(closed / "commitlog")
    with pytest.raises(StoreDamaged, match="empty"):
        open_store(closed)


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("00000000000000012288", 4095, "has 4095 bytes, not 4096"),
        ("00000000000000000000.bak", 4096, "does not belong there"),
        ("notes.txt", 3, "does not belong there"),
    ],
)
def test_strange_files_in_the_log_are_named(
    closed: Path, name: str, size: int, message: str
) -> None:
    (closed / "commitlog" / name).write_bytes(bytes(size))
    with pytest.raises(StoreUnusable, match=message):
        open_store(closed)


def test_folders_in_the_log_are_passed_over(closed: Path) -> None:
    (closed / "commitlog" / "lost+found").mkdir()
    assert len(log_records(open_store(closed))) == 3


def test_a_wrong_segment_size_is_told_with_both_sizes(closed: Path) -> None:
    with pytest.raises(StoreUnusable, match="has 4096 bytes, not 8192: open the store with"):
        open_store(closed, replace(SMALL, segment_bytes=8192))


def test_a_record_without_its_crc_check_passes_if_the_check_is_off(crashed: Path) -> None:
    last = log_records(open_store(crashed, read_only=True))[-1]
    alter(segment(crashed), last.physical_offset + 90, b"\xff")
    store = open_store(crashed, replace(SMALL, check_crc_on_recovery=False), read_only=True)
    assert Record(store.log.record_at(last.physical_offset, last.size)).body != last.body
    assert open_store(crashed, read_only=True).appended_end == last.physical_offset
