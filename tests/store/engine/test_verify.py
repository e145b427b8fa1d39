"""What `verify` says of stores that are live, crashed or begun late, and of changed records."""

from __future__ import annotations

from pathlib import Path

from aerobee.runtime.clock import ManualClock
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.record import encode_record
from aerobee.store.format.tags import TagsCodes
from tests.support.damaged_stores import (
    CONFIG,
    body_of,
    codes,
    copy_of,
    files_of,
    flip_bit,
    make_store,
    overwrite,
    queue_file,
    repair,
    segment,
    verify,
)
from tests.support.retention import (
    COMMAND_UNREAD,
    RETAINED,
    expire,
    fill,
    finish,
    open_retained,
    settle,
    take_removal,
)
from tests.support.stores import BORN_HOST, append, flush, open_store


def test_a_crashed_store_has_notes_only(tmp_path: Path) -> None:
    make_store(tmp_path / "store", 50, close=False)
    crashed = copy_of(tmp_path / "store", tmp_path / "crashed")
    verified = verify(crashed)
    assert verified.is_sound
    assert codes(verified) == {"ABORT_PRESENT", "QUEUE_BEHIND_LOG", "INDEX_BEHIND_LOG"}


def test_a_live_store_is_judged_as_it_was_at_the_last_checkpoint(tmp_path: Path) -> None:
    root = tmp_path / "store"
    clock = ManualClock()
    live = open_store(root, CONFIG, clock)
    try:
        for number in range(40):
            append(live, "orders", 0, body_of(number))
        clock.advance_ms(CONFIG.checkpoint_interval_ms)
        flush(live)
        for number in range(20):
            append(live, "orders", 0, body_of(number))  # in the log, and in no queue file
        before = files_of(root)
        verified = verify(root)
        assert verified.folder.is_live
        assert codes(verified) == set()
        assert files_of(root) == before
        # What was on the disk at the last checkpoint is judged.
        flip_bit(queue_file(root, "orders", 0), 5)
        assert codes(verify(root)) == {"QUEUE_ENTRY_WRONG"}
    finally:
        live.close()


def test_the_torn_tail_of_a_live_log_is_no_finding(tmp_path: Path) -> None:
    root = tmp_path / "store"
    live = open_store(root, CONFIG)
    try:
        append(live, "orders", 0, b"whole")
        end = live.appended_end
        record = live.log.record_at(0, end)
        overwrite(segment(root, 0), end, record[: end // 2])
        assert codes(verify(root)) == set()
        crashed = copy_of(root, tmp_path / "crashed")
        assert "LOG_TORN_TAIL" in codes(verify(crashed))
    finally:
        live.close()


def test_a_store_from_which_retention_removed_segments_is_sound(tmp_path: Path) -> None:
    clock = ManualClock()
    root = tmp_path / "store"
    live = open_retained(root, clock)
    fill(live, 60)
    settle(live, clock)
    expire(root, clock)
    for _ in range(3):
        removal = take_removal(live, request=COMMAND_UNREAD)
        assert removal is not None
        removal.run()
        finish(live, removal)
    assert codes(verify(root, RETAINED)) == set()  # live
    append(live, "Orders", 0, b"more")
    live.close()
    verified = verify(root, RETAINED)
    assert verified.folder.log_min_offset > 0
    assert codes(verified) == set()


def test_a_changed_property_is_found_where_records_have_a_checksum_of_their_own(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    opened = open_store(root, CONFIG)
    for number in range(10):
        record = encode_record(
            topic=b"orders",
            body=b"body",
            properties=b"TAGS\x01tag\x02color\x01green\x02",
            born_timestamp_ms=number,
            born_host=BORN_HOST,
            property_crc=True,
        )
        batch = check_batch(
            record,
            [len(record)],
            topic="orders",
            limits=BatchLimits(),
            store_host_ipv6=False,
            tags=TagsCodes(),
        )
        opened.append(batch, queue_id=0)
        opened.confirm(opened.appended_end)
    opened.close()
    assert codes(verify(root)) == set()
    flip_bit(segment(root, 0), segment(root, 0).read_bytes().index(b"green"))
    assert codes(verify(root)) == {"LOG_RECORD_PROPERTY_CRC"}
    plan = repair(root)
    assert plan.lost == []
    assert codes(verify(root)) == set()
