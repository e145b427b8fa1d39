"""A flipped bit in each fixed field of a record's header, as readers without Spark see it.

No checksum covers headers (bodies have one). A field is seen where something else says the same:
the record's place, its neighbours, the lengths, the queue's entry, the key index. UNSEEN names the
other fields: they are nowhere else, so a flip in them cannot be told from what was written.
Whatever the bits say, no reader breaks down.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from aerobee.store.format.record_layout import (
    BODY_AT,
    HOST_V6_EXTRA,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_HOSTS_MASK,
    SYSFLAG_STORE_HOST_V6,
    SYSFLAG_TRANSACTION_PREPARED,
)
from tests.golden_stores.conftest import GoldenStore
from tests.offset_audit.store_rows import store_rows
from tests.support.damaged_stores import make_store

pytestmark = pytest.mark.slow

Row = dict[str, Any]
Seen = tuple[tuple[str, ...], frozenset[tuple[Any, ...]], frozenset[tuple[Any, ...]]]
"""Kinds of faults; queue blocks and index blocks of which log and files differ."""

UNSEEN = (
    "flag",
    "born timestamp",
    "born host",
    "store host",
    "reconsume times",
    "prepared offset",
)
"""The application's flag, who made and who stored the record, how often it was tried, and of which
transaction it is: nothing in a store repeats them."""
KINDS = {
    "size": "BAD_LENGTHS",
    "magic": "BAD_MAGIC",
    "body CRC": "BAD_CRC",
    "physical offset": "MISPLACED",
    "body length": "BAD_LENGTHS",
    "store timestamp": "BAD_TIME",
}
"""Those that a reader of the log alone sees. Queue id and queue offset differ from the entry's."""


def fields(sys_flag: int) -> dict[str, tuple[int, int]]:
    """Where each field lies in a record, and how many bytes it has."""
    born = HOST_V6_EXTRA if sys_flag & SYSFLAG_BORN_HOST_V6 else 0
    stored = HOST_V6_EXTRA if sys_flag & SYSFLAG_STORE_HOST_V6 else 0
    widths = {
        "size": 4,
        "magic": 4,
        "body CRC": 4,
        "queue id": 4,
        "flag": 4,
        "queue offset": 8,
        "physical offset": 8,
        "system flag": 4,
        "born timestamp": 8,
        "born host": 8 + born,
        "store timestamp": 8,
        "store host": 8 + stored,
        "reconsume times": 4,
        "prepared offset": 8,
        "body length": 4,
    }
    found, at = {}, 0
    for name, width in widths.items():
        found[name] = (at, width)
        at += width
    assert at == BODY_AT + born + stored
    return found


def seen(root: Path) -> Seen:
    """What one reading of everything tells of the store."""
    sums: dict[tuple[Any, ...], dict[str, list[Any]]] = defaultdict(dict)
    faults = []
    for row in store_rows("summaries", root, checkBodies="true"):
        if row["table"] == "faults":
            faults.append(row["kind"])
        elif row["table"] in ("queue_ranges", "index_ranges"):
            place = (row["table"], row["topic"], row["queue_id"], row["block"])
            side = sums[place].setdefault("LOG" if row["source"] == "LOG" else "FILES", [0, 0])
            side[0] += row["messages"] or row["keys"] or 0
            side[1] += row["digest"]
    store_rows("pending", root)
    differing = {place for place, sides in sums.items() if sides.get("LOG") != sides.get("FILES")}
    return (
        tuple(sorted(faults)),
        frozenset(one for one in differing if one[0] == "queue_ranges"),
        frozenset(one for one in differing if one[0] == "index_ranges"),
    )


class Store:
    """A store, the segment of one of its records, and where in it the record begins."""

    def __init__(self, root: Path, segment_bytes: int, record: Row) -> None:
        self.root = root
        base, self.at = divmod(record["physical_offset"], segment_bytes)
        self.segment = root / "commitlog" / f"{base * segment_bytes:020d}"
        self.fields = fields(record["sys_flag"])
        self.before = seen(root)

    def with_flipped(self, field: str, bit: int) -> Seen:
        """Bits count from the field's last byte; the store is as it was afterwards."""
        begin, width = self.fields[field]
        at = self.at + begin + width - 1 - bit // 8
        with self.segment.open("r+b") as file:
            file.seek(at)
            was = file.read(1)
            file.seek(at)
            file.write(bytes([was[0] ^ (1 << bit % 8)]))
            file.flush()
            try:
                return seen(self.root)
            finally:
                file.seek(at)
                file.write(was)


@pytest.fixture(scope="module", params=["v1", "v2"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Ours, and one of Apache's with records of the second version and hosts of IPv6."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "v1":
        make_store(folder / "store")
        root, segment_bytes = folder / "store", 4096
    else:
        golden = GoldenStore("ipv6-v2", folder)
        root = Path(shutil.copytree(golden.root, folder / "copy"))
        segment_bytes = int(golden.manifest["config"]["mappedFileSizeCommitLog"])
    is_second = request.param == "v2"
    records = [
        row
        for row in store_rows("records", root)
        if not is_second or row["sys_flag"] & SYSFLAG_HOSTS_MASK == SYSFLAG_HOSTS_MASK
    ]
    return Store(root, segment_bytes, records[len(records) // 2])


@pytest.mark.thorough
@pytest.mark.parametrize("field", list(fields(0)))
def test_a_flipped_bit_of_a_header_is_seen_or_documented_and_ends_no_reading(
    store: Store, field: str
) -> None:
    width = store.fields[field][1]
    for bit in (0, 4 * width, 8 * width - 1):
        found = store.with_flipped(field, bit)
        if field in UNSEEN:
            assert found == store.before, (field, bit)
        elif field == "system flag":
            continue  # bit by bit, below
        elif field == "store timestamp" and bit == 0:
            continue  # the neighbours may be further away than that
        else:
            assert found != store.before, (field, bit)
            if field in KINDS:
                assert KINDS[field] in found[0], (field, bit, found)
    assert seen(store.root) == store.before


def test_system_flags_are_seen_where_they_decide_what_a_record_is(store: Store) -> None:
    for bit in (*range(12), 31):
        found = store.with_flipped("system flag", bit)
        flag = 1 << bit
        if flag & SYSFLAG_HOSTS_MASK:
            assert found[0], "all that follows lies elsewhere"
        elif flag == SYSFLAG_TRANSACTION_PREPARED:
            assert found[1] != store.before[1], "the record belongs to no queue any more"
        else:
            # Compression is told when somebody reads the body; the others mean nothing here.
            assert found == store.before, bit
