"""The checks and repairs of a store folder: what is found, what is kept, what is put back."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.folder_state import lock_store
from aerobee.store.format.record import Record, iterate_records
from aerobee.store.format.scan import scan_records
from aerobee.store.format.tags import TagsCodes
from aerobee.store.repair.damage import LostRange
from aerobee.store.repair.planner import RepairWishes, plan_repair
from aerobee.store.repair.quarantine import (
    QUARANTINED,
)
from aerobee.store.repair.repair import Repair, undo_repair
from aerobee.store.repair.verify import verify_store
from tests.support.damaged_stores import (
    CONFIG,
    MESSAGES,
    QUEUES,
    body_of,
    codes,
    copy_of,
    files_of,
    flip_bit,
    index_file,
    make_store,
    overwrite,
    queue_file,
    repair,
    segment,
    segments,
    shorten,
    swap,
    verify,
)
from tests.support.fault_disk import FaultDisk
from tests.support.stores import append, check_agreement, open_store, read_queue

pytestmark = pytest.mark.many_files


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store") / "store"
    make_store(root)
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return copy_of(made, tmp_path / "store")


def expected_bodies(topic: str, queue_id: int) -> list[bytes]:
    return [body_of(n) for n in range(MESSAGES) if QUEUES[n % 3] == (topic, queue_id)]


def check_after(root: Path, lost: list[LostRange]) -> None:
    """Sound; opens without a repair of its own; every message is there that is not said to be lost,
    and at its offset."""
    after = verify(root)
    assert after.is_sound, [finding.text for finding in after.findings]
    opened = open_store(root, CONFIG)
    try:
        assert not opened.recovery.rebuilt_queues
        check_agreement(opened)
        gone = {(r.topic, r.queue_id, n) for r in lost for n in range(r.first, r.end)}
        for topic, queue_id in QUEUES:
            bodies = read_queue(opened, topic, queue_id)
            for offset, body in enumerate(expected_bodies(topic, queue_id)):
                if (topic, queue_id, offset) not in gone:
                    assert bodies[offset] == body
    finally:
        opened.close()


# ---------------------------------------------------------------------------------- sound ones


def test_a_store_of_ours_is_sound_and_everything_was_looked_at(store: Path) -> None:
    before = files_of(store)
    verified = verify(store)
    assert codes(verified) == set()
    assert verified.totals.records == verified.queued_records == MESSAGES
    assert verified.index_entries == 3 * MESSAGES  # id, own key, shared key
    assert len(verified.folder.segments) > 3
    assert files_of(store) == before


# ---------------------------------------------------------------------------------- damage


def test_a_record_torn_in_its_properties_is_mentioned(store: Path) -> None:
    (record, *_) = whole_records(segment(store, 1))
    overwrite(segment(store, 1), record.end - 12, bytes(12))
    verified = verify(store)
    assert "LOG_RECORD_PROPERTIES" in codes(verified)
    repair(store)  # what it lists is built again; the message stays as it is
    after = verify(store)
    assert after.is_sound
    assert codes(after) == {"LOG_RECORD_PROPERTIES"}


def test_a_message_whose_body_changed_is_named_and_replaced_by_an_empty_one(store: Path) -> None:
    file = next(file for file in segments(store) if body_of(44) in file.read_bytes())
    data = file.read_bytes()
    at = data.index(body_of(44))
    flip_bit(file, at)
    verified = verify(store)
    assert codes(verified) == {"LOG_RECORD_CRC"}
    (region,) = verified.damage.regions
    (lost,) = region.lost()
    assert lost.count == 1
    plan = repair(store)
    assert plan.lost == [lost]
    check_after(store, [lost])
    opened = open_store(store, CONFIG)
    entries = opened.queues.read_entries(lost.topic, lost.queue_id, lost.first, 1)
    position, size = int.from_bytes(entries[:8], "big"), int.from_bytes(entries[8:12], "big")
    record = Record(opened.log.record_at(position, size), 0, size)
    opened.close()
    assert record.body == b""
    assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == (
        lost.topic,
        lost.queue_id,
        lost.first,
        position,
    )
    # Tag and keys could still be read, so they are kept; the original bytes are where it says.
    number = lost.first * 3 + QUEUES.index((lost.topic, lost.queue_id))
    assert record.tag == f"tag-{number % 4}"
    assert record.unique_key == f"id-{number}"
    kept = (store / str(record.property_value(QUARANTINED))).read_bytes()
    flipped = bytearray(data)
    flipped[at] ^= 1
    assert kept == flipped[region.start % 4096 : region.start % 4096 + size]


@pytest.mark.parametrize(
    ("at", "code"),
    [
        (4, "LOG_RECORD_MAGIC"),
        (0, "LOG_RECORD_LENGTHS"),
        (84, "LOG_RECORD_LENGTHS"),
        (12, "LOG_RECORD_HEADER"),
        (27, "LOG_RECORD_HEADER"),
        (35, "LOG_PHYSICAL_OFFSET"),
        (39, "LOG_RECORD_HEADER"),
    ],
)
def test_each_field_of_a_record_is_guarded_by_something(store: Path, at: int, code: str) -> None:
    file = segment(store, 2)
    records = [record.start for record in whole_records(file)]
    flip_bit(file, records[3] + at, 2)
    verified = verify(store)
    assert code in codes(verified)
    assert not verified.is_sound
    plan = repair(store)
    # What only the header said wrongly is put right, and no message is lost.
    assert bool(plan.lost) == (code in ("LOG_RECORD_MAGIC", "LOG_RECORD_LENGTHS"))
    check_after(store, plan.lost)


def whole_records(file: Path) -> list[Record]:
    data = file.read_bytes()
    scan = scan_records(data, check_crc=True, tags=TagsCodes())
    return list(iterate_records(data[: scan.valid_end]))


def test_a_missing_segment_becomes_one_of_empty_messages(store: Path) -> None:
    segment(store, 2).unlink()
    verified = verify(store)
    assert codes(verified) == {"LOG_GAP"}
    plan = repair(store)
    assert sum(lost.count for lost in plan.lost) > 5
    check_after(store, plan.lost)


def test_a_missing_last_segment_is_noticed_by_what_queues_say(store: Path) -> None:
    segment(store, -1).unlink()
    assert "LOG_GAP" in codes(verify(store))
    plan = repair(store)
    check_after(store, plan.lost)


def test_missing_oldest_segments_look_like_retention_and_are_mentioned(store: Path) -> None:
    segment(store, 0).unlink()
    verified = verify(store)
    assert verified.is_sound
    assert codes(verified) == {"LOG_BEGIN_MISSING"}


def test_messages_are_named_although_their_queue_is_gone_too(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "orders" / "1")
    file = segment(store, 1)
    flip_bit(file, file.read_bytes().index(b"message "))
    assert {"LOG_RECORD_CRC", "QUEUE_SHORT"} <= codes(verify(store))
    plan = repair(store)
    assert sum(lost.count for lost in plan.lost) == 1
    check_after(store, plan.lost)


def test_segments_that_changed_names_find_their_places_again(store: Path) -> None:
    before = files_of(store)
    swap(segment(store, 1), segment(store, 3))
    verified = verify(store)
    assert codes(verified) == {"LOG_SEGMENT_MISPLACED"}
    plan = repair(store)
    assert plan.lost == []
    check_after(store, [])
    assert {n: d for n, d in files_of(store).items() if n.startswith("commitlog")} == {
        n: d for n, d in before.items() if n.startswith("commitlog")
    }


def test_a_segment_overwritten_by_another_loses_its_messages_only(store: Path) -> None:
    segment(store, 1).write_bytes(segment(store, 3).read_bytes())
    assert "LOG_SEGMENT_MISPLACED" in codes(verify(store))
    check_after(store, repair(store).lost)


@pytest.mark.parametrize("size", [0, 1, 700, 4095])
def test_a_short_segment_gets_its_length_back(store: Path, size: int) -> None:
    shorten(segment(store, 1), size)
    assert "LOG_FILE_SIZE" in codes(verify(store))
    check_after(store, repair(store).lost)


def test_the_log_is_cut_only_when_asked_and_says_what_goes(store: Path) -> None:
    flip_bit(segment(store, 2), 300)
    verified = verify(store)
    kept = plan_repair(verified, RepairWishes(), "repair-x")
    assert sum(lost.count for lost in kept.lost) == 1
    plan = repair(store, RepairWishes(cut_at_damage=True))
    (region,) = verified.damage.regions
    after = verify(store)
    assert after.is_sound
    assert after.damage.log_end <= region.start
    # Exactly what is not there any more was said to be lost.
    assert after.totals.records + sum(lost.count for lost in plan.lost) == MESSAGES
    check_agreement_of_the_rest(store)


def check_agreement_of_the_rest(root: Path) -> None:
    opened = open_store(root, CONFIG)
    check_agreement(opened)
    opened.close()


def test_a_torn_tail_is_cut_and_kept_aside(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root, 30, close=False)
    crashed = copy_of(root, tmp_path / "crashed")
    end = verify(crashed).damage.log_end
    overwrite(segment(crashed, end // 4096), end % 4096, b"\xda\xa3 half of a record")
    verified = verify(crashed)
    assert verified.is_sound
    assert "LOG_TORN_TAIL" in codes(verified)
    plan = repair(crashed)
    assert [step.name for step in plan.steps] == ["copy", "cut"]
    assert codes(verify(crashed)) == set()
    (kept,) = (crashed / plan.folder / "bytes").iterdir()
    assert kept.read_bytes() == b"\xda\xa3 half of a record"


def test_wrong_queue_entries_are_found_and_the_queue_is_built_again(store: Path) -> None:
    before = files_of(store)
    flip_bit(queue_file(store, "orders", 1, 2), 47)
    swap(queue_file(store, "orders", 0), queue_file(store, "payments", 0))
    verified = verify(store)
    assert codes(verified) == {"QUEUE_ENTRY_WRONG"}
    assert {("orders", 0), ("orders", 1), ("payments", 0)} == set(verified.damage.bad_queues)
    repair(store)
    check_after(store, [])
    after = files_of(store)
    queues = [name for name in before if name.startswith("consumequeue/")]
    assert all(after[name] == before[name] for name in queues)


@pytest.mark.parametrize("how", ["missing file", "short file", "empty file", "missing queue"])
def test_a_queue_without_all_of_its_files_is_built_again(store: Path, how: str) -> None:
    file = queue_file(store, "orders", 0, 1)
    if how == "missing file":
        file.unlink()
    elif how == "missing queue":
        shutil.rmtree(file.parent)
    else:
        shorten(file, 0 if how == "empty file" else 60)
    assert not verify(store).is_sound
    repair(store)
    check_after(store, [])


def test_queues_and_index_are_built_again_when_asked(store: Path) -> None:
    before = files_of(store)
    plan = repair(store, RepairWishes(rebuild_queues=True, topics=frozenset({"orders"})))
    moved = [step.file for step in plan.steps if step.name == "move away"]
    assert moved == ["consumequeue/orders/0", "consumequeue/orders/1"]
    repair(store, RepairWishes(rebuild_index=True))
    check_after(store, [])
    after = files_of(store)
    assert all(after[n] == before[n] for n in before if n.startswith("consumequeue/"))


@pytest.mark.parametrize(
    ("at", "code"),
    [
        (20, "INDEX_HEADER_WRONG"),
        (39, "INDEX_HEADER_WRONG"),
        (40 + 4 * 20 + 20 + 3, "INDEX_ENTRY_WRONG"),
        (40 + 4 * 20 + 20 + 11, "INDEX_ENTRY_WRONG"),
        (40 + 4 * 20 + 20 * 40 + 19, "INDEX_CHAIN_WRONG"),
        (40 + 4 * 20 + 20 * 40 + 15, "INDEX_CHAIN_WRONG"),
        (40 + 4 * 3 + 3, "INDEX_SLOT_WRONG"),
    ],
)
def test_each_part_of_an_index_file_is_checked(store: Path, at: int, code: str) -> None:
    flip_bit(index_file(store, 1), at)
    verified = verify(store)
    assert code in codes(verified)
    assert not verified.is_sound
    repair(store)
    check_after(store, [])
    assert verify(store).index_entries == 3 * MESSAGES


def test_a_missing_or_short_index_file_is_noticed(store: Path) -> None:
    index_file(store, 1).unlink()
    assert "INDEX_KEY_MISSING" in codes(verify(store))
    repair(store)
    check_after(store, [])
    shorten(index_file(store, 0), 100)
    assert "INDEX_FILE_SIZE" in codes(verify(store))
    repair(store)
    check_after(store, [])


def test_strays_are_moved_away_and_kept(store: Path) -> None:
    for path in ("commitlog/x.tmp", "consumequeue/orders/0/y", "index/z", "consumequeue/note"):
        (store / path).write_bytes(b"stray")
    found = codes(verify(store))
    assert found == {"LOG_STRAY_FILE", "QUEUE_STRAY_FILE", "INDEX_STRAY_FILE"}
    plan = repair(store)
    assert codes(verify(store)) == set()
    assert (store / plan.folder / "files/commitlog/x.tmp").read_bytes() == b"stray"


def test_a_checkpoint_that_speaks_of_more_than_there_is_is_rewritten(store: Path) -> None:
    overwrite(store / "checkpoint", 32, (1 << 40).to_bytes(8, "big"))
    verified = verify(store)
    assert "CHECKPOINT_AHEAD" in codes(verified)
    assert not verified.is_sound
    plan = repair(store)
    assert plan.lost == []
    check_after(store, [])


def test_an_unreadable_checkpoint_costs_nothing(store: Path) -> None:
    shorten(store / "checkpoint", 3)
    verified = verify(store)
    assert "CHECKPOINT_UNREADABLE" in codes(verified)
    repair(store)
    check_after(store, [])


# ---------------------------------------------------------------------------------- many faults


def damage_by_chance(root: Path, chance: random.Random) -> str:
    kind = chance.choice(["commitlog", "commitlog", "consumequeue", "index"])
    files = [path for path in sorted((root / kind).rglob("*")) if path.is_file()]
    file = chance.choice(files)
    size = file.stat().st_size
    at = chance.randrange(max(size, 1))
    how = chance.choice(["flip", "flip", "garbage", "zeros", "short", "missing", "swap", "copy"])
    other = chance.choice(files)
    if how in ("flip", "garbage", "zeros") and not size:
        return "nothing"
    if how == "flip":
        flip_bit(file, at, chance.randrange(8))
    elif how in ("garbage", "zeros"):
        count = min(size - at, chance.randrange(1, 600))
        overwrite(file, at, chance.randbytes(count) if how == "garbage" else bytes(count))
    elif how == "short":
        shorten(file, at)
    elif how == "missing":
        if file == segment(root, 0):
            return "nothing"  # as retention would
        file.unlink()
    elif how == "swap":
        swap(file, other)
    else:
        other.write_bytes(file.read_bytes())
    return f"{how} {file.relative_to(root)} at {at} ({other.relative_to(root)})"


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_to_one_file_the_rest_is_served_after_a_repair(
    store: Path, seed: int
) -> None:
    done = damage_by_chance(store, random.Random(seed))
    plan = repair(store)
    assert not plan.left, done
    check_after(store, plan.lost)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_150))
def test_the_same_for_several_files(store: Path, seed: int) -> None:
    chance = random.Random(seed)
    done = [damage_by_chance(store, chance) for _ in range(chance.randrange(1, 4))]
    repair(store)
    after = verify(store)
    assert after.is_sound, (done, [finding.text for finding in after.findings])
    open_store(store, CONFIG).close()


# ---------------------------------------------------------------------------------- undoing


def damage_everywhere(root: Path) -> None:
    flip_bit(segment(root, 1), 200)
    segment(root, 3).unlink()
    (root / "commitlog" / "stray").write_bytes(b"x")
    flip_bit(queue_file(root, "payments", 0), 3)
    flip_bit(index_file(root), 60)
    shorten(root / "checkpoint", 10)


def test_a_repair_can_be_undone_to_the_byte(store: Path) -> None:
    damage_everywhere(store)
    before = files_of(store)
    plan = repair(store)
    assert files_of(store) != before
    lock = lock_store(RealDisk(store))
    undo_repair(RealDisk(store), plan.folder)
    lock.release()
    assert files_of(store) == before


def test_a_repair_without_room_for_its_copies_changes_nothing(store: Path) -> None:
    damage_everywhere(store)
    before = files_of(store)
    disk = FaultDisk(store)
    plan = plan_repair(verify_store(RealDisk(store), CONFIG), RepairWishes(), "repair-x")
    disk.free, disk.total = 1_000, 1 << 40
    with pytest.raises(StoreUnusable, match="make room"):
        Repair(disk, plan, ManualClock()).apply()
    assert files_of(store) == before


class _Crash(Exception):
    pass


@pytest.mark.parametrize("at", range(7))
def test_a_repair_that_dies_in_between_can_be_undone_or_repeated(store: Path, at: int) -> None:
    damage_everywhere(store)
    before = files_of(store)
    disk = RealDisk(store)
    plan = plan_repair(verify_store(disk, CONFIG), RepairWishes(), "repair-first")
    assert len(plan.steps) >= 7

    def die(number: int, _: object) -> None:
        if number == at:
            raise _Crash

    with pytest.raises(_Crash):
        Repair(disk, plan, ManualClock()).apply(on_step=die)
    again = copy_of(store, store.with_name("again"))
    undo_repair(disk, "repair-first")
    assert files_of(store) == before
    second = repair(again)
    assert verify(again).is_sound
    assert not second.left


def test_a_repair_is_not_undone_once_the_store_was_used(store: Path) -> None:
    file = segment(store, 1)
    flip_bit(file, file.read_bytes().index(b"message "))
    plan = repair(store)
    used = open_store(store, CONFIG)
    append(used, "orders", 0, b"new")
    used.close()
    with pytest.raises(StoreUnusable, match="was used after the repair"):
        undo_repair(RealDisk(store), plan.folder)
