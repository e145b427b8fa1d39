"""Tables of Apache's timer and delay levels: read as it writes them, written as it reads them."""

from __future__ import annotations

import json

import pytest

from aerobee.store.engine.tables.count_table import CountTable, TopicCount
from aerobee.store.engine.tables.delay_offset_table import DelayOffsetTable

DELAYS = b"""{
	"dataVersion":{
		"counter":9,
		"stateVersion":0,
		"timestamp":1795252644886
	},
	"offsetTable":{1:11,2:2,14:0,16:0,18:0
	}
}"""
TIMERS = (
    b'{"dataVersion":{"counter":46,"stateVersion":0,"timestamp":1795252591091},'
    b'"timingCount":{"OrderEvents":{"count":38,"timeStamp":1795252591091}}}'
)
TRANSACTIONS = TIMERS.replace(b"timingCount", b"transactionCount")


def test_delay_offsets_with_bare_levels_are_read() -> None:
    table = DelayOffsetTable.load(DELAYS)
    assert table.offsets() == {1: 11, 2: 2, 14: 0, 16: 0, 18: 0}
    old = DelayOffsetTable.load(b'{"offsetTable":{3:2}}')
    assert old.offsets() == {3: 2}


def test_delay_offsets_are_written_with_quoted_levels_and_a_higher_data_version() -> None:
    table = DelayOffsetTable.load(DELAYS)
    assert json.loads(table.snapshot_bytes(5))["dataVersion"]["counter"] == 9
    table.put(2, 3)
    table.put(2, 3)
    assert table.changes == 1
    document = json.loads(table.snapshot_bytes(5))
    assert document == {
        "dataVersion": {"counter": 10, "stateVersion": 0, "timestamp": 5},
        "offsetTable": {"1": 11, "2": 3, "14": 0, "16": 0, "18": 0},
    }
    assert DelayOffsetTable.load(table.snapshot_bytes(5)).offsets() == table.offsets()


def test_entries_and_members_of_another_kind_are_kept() -> None:
    text = b'{"offsetTable":{"x":"y","1":4},"later":[1]}'
    table = DelayOffsetTable.load(text)
    assert table.offsets() == {1: 4}
    document = json.loads(table.snapshot_bytes(5))
    assert document["offsetTable"] == {"x": "y", "1": 4}
    assert document["later"] == [1]


@pytest.mark.parametrize("data", [TIMERS, TRANSACTIONS])
def test_counts_that_did_not_change_are_written_as_apache_wrote_them(data: bytes) -> None:
    table = CountTable.load(data)
    assert table.counts() == {"OrderEvents": TopicCount(38, 1795252591091)}
    assert table.snapshot_bytes(5) == data


def test_counts_are_added_up_by_topic() -> None:
    table = CountTable("timingCount")
    table.add("t", 2, now_ms=7)
    table.add("t", -1, now_ms=8)
    assert table.counts() == {"t": TopicCount(1, 8)}
    assert json.loads(table.snapshot_bytes(9)) == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 9},
        "timingCount": {"t": {"count": 1, "timeStamp": 8}},
    }


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"{}",
        b'{"timingCount":{},"transactionCount":{}}',
        b'{"timingCount":{"t":5}}',
        b'{"timingCount":{"t":{"count":"5"}}}',
    ],
)
def test_a_file_of_another_shape_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        CountTable.load(text)
