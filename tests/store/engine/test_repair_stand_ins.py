"""What takes the place of a record that cannot be kept: a record of exactly its size."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from aerobee.store.format.record import Record
from aerobee.store.format.scan import ScanEnd, scan_records
from aerobee.store.format.tags import TagsCodes
from aerobee.store.repair.findings import Kind
from aerobee.store.repair.quarantine import (
    QUARANTINED,
    StandIn,
    filler_records,
    place,
    size_min,
    stand_in_record,
)


@pytest.mark.parametrize("extra", [0, 1, 13, 14, 60, 40_000])
def test_a_stand_in_has_exactly_the_size_of_what_it_replaces(extra: int) -> None:
    size = size_min(b"orders") + extra
    wanted = StandIn("orders", 3, 17, 1_000, size)
    data = stand_in_record(wanted, bytes(size), kept_at="here", store_timestamp_ms=(5, 9))
    record = Record(data, 0, size)
    record.check()
    assert len(data) == record.size == size
    assert (record.topic, record.queue_id, record.queue_offset) == ("orders", 3, 17)
    assert (record.physical_offset, record.store_timestamp_ms) == (1_000, 5)
    assert (record.property_value(QUARANTINED) is not None) == (extra >= 17)
    with pytest.raises(ValueError, match="too few"):
        stand_in_record(
            StandIn("orders", 3, 17, 1_000, size_min(b"orders") - 1),
            b"",
            kept_at="",
            store_timestamp_ms=(5, 9),
        )


@pytest.mark.parametrize("size", [92, 93, 200, 3 << 20])
def test_fillers_are_whole_records_that_no_queue_lists(size: int) -> None:
    data = b"".join(filler_records(500, size, 7))
    scan = scan_records(data, check_crc=True, tags=TagsCodes())
    assert (len(data), scan.valid_end, scan.end) == (size, size, ScanEnd.BUFFER_END)
    assert (scan.sys_flags == 0xC).all()
    assert (scan.physical_offsets == scan.positions + 500).all()


def test_messages_without_a_place_share_the_rooms_between_the_others() -> None:
    known = StandIn("a", 0, 5, 1_200, 300)
    across = StandIn("a", 0, 6, 1_400, 300)  # an entry that cannot be true
    lost = [StandIn("b", 1, offset, 0, 0) for offset in range(3)]
    messages, rooms, homeless = place(1_000, 2_000, [known, across], lost)
    assert not homeless
    assert known in messages
    covered = sorted((m.position, m.position + m.size) for m in messages)
    covered += [(room.start, room.end) for room in rooms]
    covered.sort()
    assert covered[0][0] == 1_000
    assert covered[-1][1] == 2_000
    assert all(one[1] == other[0] for one, other in pairwise(covered))
    assert len(messages) == 5


def test_every_kind_of_finding_says_what_it_means_and_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "store-tools.md").read_text("utf-8")
    for kind in Kind:
        assert f"| `{kind.name}` | {kind.severity} | {kind.meaning} |" in page
        assert kind.meaning, kind
        assert kind.advice, kind
