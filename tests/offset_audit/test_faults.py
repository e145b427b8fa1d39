"""Damage gives the fault that it is, exactly once, and nothing else; what is whole gives none."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from aerobee.offset_audit.sources.store import faults_tables
from aerobee.offset_audit.sources.store.faults_log import stored_before
from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.folders import find_stores
from aerobee.offset_audit.sources.store.plan import LogPiece
from aerobee.offset_audit.sources.store.ranges_facts import store_facts
from aerobee.store.format.index_file import IndexGeometry
from aerobee.store.format.record_layout import (
    BODY_CRC_AT,
    BODY_LENGTH_AT,
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    SIZE_AT,
    STORE_TIMESTAMP_AT,
)
from tests.golden_stores.conftest import GoldenStore
from tests.offset_audit.store_rows import store_rows
from tests.support.damaged_stores import (
    CONFIG,
    flip_bit,
    index_file,
    make_store,
    overwrite,
    queue_file,
    segment,
    segments,
    shorten,
)

Row = dict[str, Any]
GEOMETRY = IndexGeometry(CONFIG.index_slots_max, CONFIG.index_entries_max)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "store"
    make_store(root)
    return root


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "store"))


def faults(root: Path) -> list[Row]:
    found = store_rows("faults", root, checkBodies="true")
    return [{key: value for key, value in row.items() if value is not None} for row in found]


def records(root: Path) -> list[Row]:
    """All records, of a store that is whole, in order."""
    return store_rows("records", root)


def place(root: Path, record: Row) -> tuple[Path, int]:
    """The segment of a record, and where in it the record begins."""
    number, at = divmod(record["physical_offset"], CONFIG.segment_bytes)
    return segment(root, number), at


def the_one(found: list[Row], kind: str) -> Row:
    assert [row["kind"] for row in found] == [kind], found
    return found[0]


# ----------------------------------------------------------------------------------- the log


def test_a_whole_store_has_no_faults(store: Path) -> None:
    assert faults(store) == []


def test_a_body_that_lost_a_bit_is_one_fault_that_names_its_message(store: Path) -> None:
    record = records(store)[40]
    file, at = place(store, record)
    flip_bit(file, at + 90)
    fault = the_one(faults(store), "BAD_CRC")
    assert fault["position"] == record["physical_offset"]
    assert (fault["topic"], fault["queue_id"], fault["queue_offset"]) == (
        record["topic"],
        record["queue_id"],
        record["queue_offset"],
    )
    assert "size" not in fault, "all around it can be read"


@pytest.mark.parametrize(
    ("field_at", "kind"),
    [(SIZE_AT + 2, "BAD_LENGTHS"), (MAGIC_AT, "BAD_MAGIC"), (BODY_LENGTH_AT + 3, "BAD_LENGTHS")],
)
def test_a_record_that_cannot_be_read_is_one_fault_of_exactly_its_bytes(
    store: Path, field_at: int, kind: str
) -> None:
    record = records(store)[30]
    file, at = place(store, record)
    flip_bit(file, at + field_at, 2)
    fault = the_one(faults(store), kind)
    assert (fault["position"], fault["size"]) == (record["physical_offset"], record["size"])
    assert (fault["queue_id"], fault["queue_offset"]) == (
        record["queue_id"],
        record["queue_offset"],
    )
    if field_at < BODY_LENGTH_AT:
        assert fault["topic"] == record["topic"]


def test_a_record_that_says_it_lies_elsewhere_is_one_fault(store: Path) -> None:
    record = records(store)[30]
    file, at = place(store, record)
    flip_bit(file, at + PHYSICAL_OFFSET_AT + 7)
    fault = the_one(faults(store), "MISPLACED")
    assert (fault["position"], fault["size"]) == (record["physical_offset"], record["size"])


def test_zeros_in_the_middle_are_one_hole_up_to_the_next_record(store: Path) -> None:
    every = records(store)
    file, at = place(store, every[30])
    assert place(store, every[32])[0] == file
    overwrite(file, at, bytes(every[30]["size"] + 40))
    fault = the_one(faults(store), "HOLE")
    assert fault["position"] == every[30]["physical_offset"]
    assert fault["size"] == every[30]["size"] + every[31]["size"]


def test_a_missing_segment_is_one_fault_of_its_whole_length(store: Path) -> None:
    segment(store, 3).unlink()
    fault = the_one(faults(store), "MISSING_SEGMENT")
    assert (fault["position"], fault["size"]) == (3 * 4096, 4096)


def test_a_segment_that_was_cut_is_one_fault_from_its_last_whole_record_on(store: Path) -> None:
    every = [row for row in records(store) if row["physical_offset"] // 4096 == 3]
    cut = every[4]["physical_offset"] + 30
    shorten(segment(store, 3), cut - 3 * 4096)
    fault = the_one(faults(store), "CUT_SEGMENT")
    assert fault["position"] == every[4]["physical_offset"]
    assert fault["position"] + fault["size"] == 4 * 4096


def set_time(root: Path, record: Row, store_ms: int) -> None:
    file, at = place(root, record)
    overwrite(file, at + STORE_TIMESTAMP_AT, store_ms.to_bytes(8, "big", signed=True))


def test_a_step_back_in_time_is_one_fault_with_its_length(store: Path) -> None:
    every = records(store)
    for record in every[30:]:
        set_time(store, record, record["store_ms"] - 60_000)
    fault = the_one(faults(store), "TIME_BACKWARD")
    assert fault["position"] == every[30]["physical_offset"]
    assert (fault["store_ms"], fault["back_ms"]) == (every[30]["store_ms"] - 60_000, 59_500)
    assert "size" not in fault, "all around it can be read"


@pytest.mark.thorough
@pytest.mark.parametrize("bit", range(64))
def test_any_flipped_bit_of_a_store_time_is_a_fault_of_its_record_or_within_the_order(
    store: Path, bit: int
) -> None:
    every = records(store)
    earlier, before, record, after = every[28:32]
    flipped = int.from_bytes(
        (record["store_ms"] ^ (1 << bit)).to_bytes(8, "big", signed=False), "big", signed=True
    )
    set_time(store, record, flipped)
    found = faults(store)
    if before["store_ms"] <= flipped <= after["store_ms"]:
        assert found == [], "no checksum covers it, and nothing contradicts it"
        return
    fault = the_one(found, "BAD_TIME")
    # Where it is but a little too early, it may as well be the one before that is too late.
    wrong = before if earlier["store_ms"] <= flipped < before["store_ms"] else record
    assert fault["position"] == wrong["physical_offset"]
    assert fault["store_ms"] == (flipped if wrong is record else before["store_ms"])
    assert (fault["topic"], fault["queue_id"]) == (wrong["topic"], wrong["queue_id"])
    assert fault["queue_offset"] == wrong["queue_offset"]
    assert 0 < fault["back_ms"] < 1 << 63
    assert store_rows("log_ranges", store)
    assert store_rows("minutes", store)


@pytest.mark.parametrize("change_ms", [3_600_000, -3_600_000])
@pytest.mark.parametrize("row", [29, 30, 31, 32, 33, 34, 35, 36, 37, 38])
def test_one_wrong_time_is_one_fault_wherever_parts_of_the_log_begin(
    store: Path, row: int, change_ms: int
) -> None:
    record = records(store)[row]
    set_time(store, record, record["store_ms"] + change_ms)
    found = store_rows("faults", store, partitionBytes="4096")
    assert [(one["kind"], one["position"]) for one in found] == [
        ("BAD_TIME", record["physical_offset"])
    ]


def test_a_fall_at_the_very_end_is_told_when_nothing_follows(store: Path) -> None:
    record = records(store)[-1]
    set_time(store, record, record["store_ms"] - 3_600_000)
    assert the_one(faults(store), "TIME_BACKWARD")["position"] == record["physical_offset"]
    set_time(store, record, -5)
    found = [one for one in faults(store) if one["kind"] != "BAD_CHECKPOINT"]
    assert the_one(found, "BAD_TIME")["position"] == record["physical_offset"]


@pytest.mark.parametrize("is_at_segment_start", [True, False])
def test_a_step_back_is_seen_where_the_readers_of_two_parts_meet(
    store: Path, is_at_segment_start: bool
) -> None:
    facts = store_facts(find_stores([str(store)])[0])
    every = records(store)
    record = next(
        row
        for row in every[20:]
        if (row["physical_offset"] % CONFIG.segment_bytes == 0) is is_at_segment_start
    )
    before = every[every.index(record) - 1]
    begin, base = record["physical_offset"], record["physical_offset"] // 4096 * 4096
    file = StoreFile(str(place(store, record)[0]), base, 4096)
    piece = LogPiece(facts.store, file, begin, base + 4096, is_open=False)
    found = stored_before(piece, 4096)
    assert found[-1] == (before["physical_offset"], before["store_ms"])


def test_bytes_behind_the_end_are_a_fault_only_after_a_clean_stop(store: Path) -> None:
    last = records(store)[-1]
    end = last["physical_offset"] + last["size"]
    file = segments(store)[end // 4096]
    overwrite(file, end % 4096, b"\0\0\0\x80" + b"\xda\xa3\x20\xa7" + b"x" * 20)
    fault = the_one(faults(store), "TORN")
    assert (fault["position"], fault["size"]) == (end, 28)
    Path(store, "abort").touch()
    assert faults(store) == []


def test_a_torn_last_record_ends_the_log_of_a_store_that_crashed(store: Path) -> None:
    every = records(store)
    file, at = place(store, every[-1])
    overwrite(file, at + 89, b"torn")
    the_one(faults(store), "BAD_CRC")
    assert messages(store) == {"LOG": len(every), "ENTRIES": len(every)}
    Path(store, "abort").touch()
    assert faults(store) == []
    # What leads behind the end counts as little as what lies there.
    assert messages(store) == {"LOG": len(every) - 1, "ENTRIES": len(every) - 1}


def messages(root: Path) -> dict[str, int]:
    counted = {"LOG": 0, "ENTRIES": 0}
    for row in store_rows("queue_ranges", root):
        counted[row["source"]] += row["messages"]
    return counted


CRITICAL = (*range(8), *range(PHYSICAL_OFFSET_AT, PHYSICAL_OFFSET_AT + 8), *range(84, 88))
"""Bytes of a header without which a record cannot be read."""


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_that_matters_is_one_fault_of_the_record_it_hit(
    store: Path, seed: int
) -> None:
    chance = random.Random(seed)
    every = records(store)
    record = chance.choice(every[1:-1])
    body = range(88, 88 + record["body_size"])
    byte = chance.choice((*CRITICAL, *chance.sample(body, 8), *range(BODY_CRC_AT + 1, 12)))
    file, at = place(store, record)
    flip_bit(file, at + byte, chance.randrange(7))
    (fault,) = faults(store)
    assert fault["position"] == record["physical_offset"]
    if byte in body or BODY_CRC_AT <= byte < BODY_CRC_AT + 4:
        assert fault["kind"] == "BAD_CRC"
    else:
        assert fault["size"] == record["size"]


def test_two_damaged_records_are_two_faults(store: Path) -> None:
    every = records(store)
    for record in (every[10], every[60]):
        file, at = place(store, record)
        flip_bit(file, at + MAGIC_AT + 1)
    found = faults(store)
    assert [row["kind"] for row in found] == ["BAD_MAGIC"] * 2
    assert [row["position"] for row in found] == [
        every[number]["physical_offset"] for number in (10, 60)
    ]


# ------------------------------------------------------------------------------------- files


def test_a_queue_file_that_is_missing_or_cut_is_one_fault(store: Path) -> None:
    queue_file(store, "orders", 0, 1).unlink()
    fault = the_one(faults(store), "MISSING_FILE")
    assert (fault["topic"], fault["queue_id"], fault["queue_offset"]) == ("orders", 0, 10)
    cut = queue_file(store, "payments", 0, 0)
    shorten(cut, 60)
    kinds = {row["kind"]: row for row in faults(store)}
    assert kinds.keys() == {"MISSING_FILE", "QUEUE_FILE_SIZE"}
    assert kinds["QUEUE_FILE_SIZE"]["queue_offset"] == 3


@pytest.mark.parametrize("with_backup", [True, False])
def test_a_table_that_does_not_parse_is_one_fault_that_tells_of_its_backup(
    store: Path, with_backup: bool
) -> None:
    table = Path(store, "config", "topics.json")
    table.parent.mkdir(exist_ok=True)
    Path(f"{table}.bak").unlink(missing_ok=True)
    if with_backup:
        Path(f"{table}.bak").write_text('{"topicConfigTable":{}}')
    table.write_text('{"topicConfigTable":{')
    fault = the_one(faults(store), "BAD_CONFIG")
    assert fault["file"] == "config/topics.json"
    assert ("backup can be read" in fault["detail"]) is with_backup


@pytest.mark.parametrize("content", [b"", b"x" * 4096, (1 << 60).to_bytes(8, "big").ljust(4096)])
def test_a_checkpoint_that_cannot_be_is_one_fault(store: Path, content: bytes) -> None:
    Path(store, "checkpoint").write_bytes(content)
    the_one(faults(store), "BAD_CHECKPOINT")


# ------------------------------------------------------------------------------------- index


def lost_keys(root: Path) -> int:
    keys = {"LOG": 0, "INDEX": 0}
    for row in store_rows("index_ranges", root):
        keys[row["source"]] += row["keys"]
    return keys["LOG"] - keys["INDEX"]


def used_slots(file: Path) -> dict[int, int]:
    data = file.read_bytes()
    found = {}
    for slot in range(GEOMETRY.slots):
        at = GEOMETRY.slot_at(slot)
        if number := int.from_bytes(data[at : at + 4], "big"):
            found[slot] = number
    return found


def chain(file: Path, number: int) -> list[int]:
    """The entries that a search passes, walked one by one."""
    data = file.read_bytes()
    passed = []
    while number and number not in passed:
        passed.append(number)
        at = GEOMETRY.entry_at(number) + 16
        number = int.from_bytes(data[at : at + 4], "big")
    return passed


@pytest.mark.parametrize(("name", "files"), [("clean-small", 5), ("ipv6-v2", 1)])
def test_keys_of_a_lost_index_file_of_apache_are_missed(
    tmp_path: Path, name: str, files: int
) -> None:
    """After a clean stop: the first, one in the middle, the last or the only one."""
    root = GoldenStore(name, tmp_path).root
    paths = sorted((root / "index").iterdir())
    assert (len(paths), lost_keys(root)) == (files, 0)
    for path in paths:
        aside = path.rename(tmp_path / "aside")
        assert lost_keys(root) > 0, path
        aside.rename(path)


def test_the_sizes_of_index_files_are_found_in_them(store: Path) -> None:
    assert store_facts(find_stores([str(store)])[0]).index_geometry == GEOMETRY
    assert lost_keys(store) == 0


def test_a_slot_that_was_emptied_is_one_fault_and_loses_its_whole_chain(store: Path) -> None:
    file = index_file(store, 0)
    slot, head = max(used_slots(file).items(), key=lambda item: len(chain(file, item[1])))
    length = len(chain(file, head))
    assert length > 3
    overwrite(file, GEOMETRY.slot_at(slot), bytes(4))
    fault = the_one(faults(store), "INDEX_SLOT")
    assert fault["position"] == GEOMETRY.slot_at(slot)
    assert f"{length} keys cannot be found" in fault["detail"]
    assert lost_keys(store) == length


def test_a_link_that_was_cut_loses_what_is_behind_it(store: Path) -> None:
    file = index_file(store, 0)
    passed = max((chain(file, head) for head in used_slots(file).values()), key=len)
    overwrite(file, GEOMETRY.entry_at(passed[1]) + 16, bytes(4))
    fault = the_one(faults(store), "INDEX_ENTRY")
    assert fault["position"] == GEOMETRY.entry_at(passed[1])
    assert lost_keys(store) == len(passed) - 2


def test_a_link_that_leads_back_is_no_endless_walk(store: Path) -> None:
    file = index_file(store, 0)
    passed = max((chain(file, head) for head in used_slots(file).values()), key=len)
    overwrite(file, GEOMETRY.entry_at(passed[2]) + 16, passed[0].to_bytes(4, "big"))
    the_one(faults(store), "INDEX_ENTRY")
    assert lost_keys(store) == len(passed) - 3


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_of_a_hash_is_one_fault_and_one_lost_key(store: Path, seed: int) -> None:
    chance = random.Random(seed)
    file = index_file(store, 0)
    number = chance.randrange(1, 99)
    flip_bit(file, GEOMETRY.entry_at(number) + chance.randrange(1, 4), chance.randrange(8))
    fault = the_one(faults(store), "INDEX_ENTRY")
    assert fault["position"] == GEOMETRY.entry_at(number)
    ranges = store_rows("index_ranges", store)
    digests = {
        source: sum(row["digest"] for row in ranges if row["source"] == source)
        for source in ("LOG", "INDEX")
    }
    assert digests["LOG"] != digests["INDEX"]


@pytest.mark.parametrize("seed", range(10))
def test_any_damage_to_slots_and_links_loses_what_walking_the_chains_would_miss(
    store: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    file = index_file(store, 0)
    for _ in range(chance.randrange(1, 6)):
        at = chance.choice(
            (
                GEOMETRY.slot_at(chance.randrange(GEOMETRY.slots)),
                GEOMETRY.entry_at(chance.randrange(1, 99)) + 16,
            )
        )
        overwrite(file, at, chance.randrange(-3, 105).to_bytes(4, "big", signed=True))
    expected = len(every_key(file)) - len(found_keys(file))
    assert lost_keys(store) == expected
    # The same where so much is wrong that all chains are walked together.
    monkeypatch.setattr("aerobee.offset_audit.sources.store.index_reach.BROKEN_MAX", 0)
    assert lost_keys(store) == expected


def test_an_index_without_its_slots_is_one_fault_that_tells_how_many_keys_are_lost(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("index_reach", "faults_index"):
        monkeypatch.setattr(f"aerobee.offset_audit.sources.store.{module}.BROKEN_MAX", 3)
    file = index_file(store, 0)
    lost = len(every_key(file))
    assert len(used_slots(file)) > 3
    overwrite(file, GEOMETRY.slot_at(0), bytes(4 * GEOMETRY.slots))
    fault = the_one(faults(store), "INDEX_SLOT")
    assert f"{lost} keys cannot be found" in fault["detail"]
    assert lost_keys(store) == lost


def every_key(file: Path) -> set[int]:
    count = int.from_bytes(file.read_bytes()[36:40], "big")
    return set(range(1, count))


def found_keys(file: Path) -> set[int]:
    """Numbers of entries that a search for their own key passes, by walking as a search does."""
    data = file.read_bytes()
    count = int.from_bytes(data[36:40], "big")

    def number_at(at: int) -> int:
        return int.from_bytes(data[at : at + 4], "big", signed=True)

    found = set()
    for slot in range(GEOMETRY.slots):
        number, passed = number_at(GEOMETRY.slot_at(slot)), set[int]()
        while 0 < number < count and number not in passed:
            passed.add(number)
            at = GEOMETRY.entry_at(number)
            if number_at(at) % GEOMETRY.slots == slot:
                found.add(number)
            number = number_at(at + 16)
    return found


def test_a_header_that_counts_wrongly_is_one_fault(store: Path) -> None:
    file = index_file(store, 0)
    overwrite(file, 36, (57).to_bytes(4, "big"))
    the_one(faults(store), "INDEX_HEADER")


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("number", [0, -1])
def test_an_index_file_that_counts_no_entry_is_told_of_and_ends_no_reading(
    store: Path, number: int, count: int
) -> None:
    overwrite(index_file(store, number), 36, count.to_bytes(4, "big"))
    found = faults(store)
    assert found
    assert all(row["kind"].startswith("INDEX_") for row in found)


def test_an_index_file_that_vanished_loses_its_keys(store: Path) -> None:
    files = sorted(Path(store, "index").iterdir())
    assert len(files) > 2
    files[1].unlink()
    assert lost_keys(store) == 99
    assert faults(store) == []


def test_a_table_that_is_being_written_is_looked_at_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's broker writes over the old table; the wait in between is where it ends."""
    path = store / "config" / "topics.json"
    path.parent.mkdir(exist_ok=True)
    whole = b'{"topicConfigTable":{}}'
    path.write_bytes(whole[:12])
    assert the_one(faults(store), "BAD_CONFIG")["file"] == "config/topics.json"

    class Written:
        def wait(self, _timeout_s: float) -> None:
            path.write_bytes(whole)

    monkeypatch.setattr(faults_tables, "Event", Written)
    assert faults(store) == []
