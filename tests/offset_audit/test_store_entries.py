"""Kind `entries`: queue files are read whole, divided anywhere, while a broker writes to them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.offset_audit.sources.store.conditions import Conditions, Numbers
from aerobee.offset_audit.sources.store.folders import Origin, StoreFolder
from aerobee.offset_audit.sources.store.plan import QueuePiece, plan_queues
from aerobee.offset_audit.sources.store.queue_chunks import queue_chunks
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, PRE_BLANK_ENTRY, pack_entries
from tests.golden_stores.conftest import NAMES, GoldenStore
from tests.offset_audit.store_rows import store_rows
from tests.support.property_runs import examples
from tests.support.stores import append, open_store


@pytest.mark.parametrize("name", NAMES)
def test_the_entries_of_apache_s_queues_are_read_as_apache_reads_them(
    name: str, tmp_path: Path
) -> None:
    golden = GoldenStore(name, tmp_path)
    rows = store_rows(
        "entries", golden.root, columns="topic,queue_id,queue_offset,position,size,tags_code"
    )
    queues: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {}
    for row in rows:
        entry = (row["queue_offset"], row["position"], row["size"], row["tags_code"])
        queues.setdefault((row["topic"], row["queue_id"]), []).append(entry)
    for topic, by_id in golden.topics.items():
        for queue_id, queue in by_id.items():
            low, high = queue["minOffset"], queue["maxOffset"]
            # Files of a crashed broker may hold entries that it cuts off when it starts.
            entries = [e for e in queues[topic, int(queue_id)] if low <= e[0] < high]
            assert [entry[0] for entry in entries] == list(range(low, low + len(entries)))
            if len(entries) < high - low:
                assert (name, topic, queue_id) == ("crashed-torn", "PaymentNotices", "0")
                continue
            columns = np.array(entries, np.int64)[:, 1:]
            packed = pack_entries(*columns.T)
            assert hashlib.sha256(packed).hexdigest() == queue["entriesSha256"]


def write_queue(
    root: Path, *, first: int, count: int, per_file: int, zeros: int, blank_from: int
) -> list[tuple[int, int]]:
    """A queue whose first message is `first`, in files that begin at `blank_from`."""
    folder = root / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    (root / "commitlog").mkdir()
    offsets = range(first, first + count)
    positions = [100 * offset for offset in offsets]
    data = PRE_BLANK_ENTRY * (first - blank_from)
    data += pack_entries(positions, [99] * count, [7] * count)
    data += bytes(ENTRY_SIZE * zeros)
    file_bytes = per_file * ENTRY_SIZE
    for at in range(0, len(data), file_bytes):
        name = f"{blank_from * ENTRY_SIZE + at:020d}"
        (folder / name).write_bytes(data[at : at + file_bytes].ljust(file_bytes, b"\0"))
    return list(zip(offsets, positions, strict=True))


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    files_before=st.integers(0, 3),
    blanks=st.integers(0, 9),
    count=st.integers(1, 60),
    chunk_entries=st.integers(1, 40),
    data=st.data(),
)
def test_each_entry_comes_once_at_its_offset_and_blanks_and_zeros_do_not(
    files_before: int,
    blanks: int,
    count: int,
    chunk_entries: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("store")
    per_file = 10
    first = files_before * per_file + blanks
    room = -(blanks + count) % per_file
    zeros = data.draw(st.integers(0, room))
    expected = write_queue(
        root,
        first=first,
        count=count,
        per_file=per_file,
        zeros=zeros,
        blank_from=files_before * per_file,
    )
    found: list[tuple[int, int]] = []
    for partition in plan_queues([StoreFolder(str(root), Origin())]):
        for piece in partition.pieces:
            assert isinstance(piece, QueuePiece)
            for chunk in queue_chunks(piece, chunk_entries=chunk_entries):
                assert chunk.sound.all()
                found += zip(chunk.queue_offsets.tolist(), chunk.positions.tolist(), strict=True)
    assert found == expected


def test_an_entry_of_zeros_between_others_is_there_and_is_not_sound(tmp_path: Path) -> None:
    write_queue(tmp_path, first=0, count=8, per_file=10, zeros=2, blank_from=0)
    path = next((tmp_path / "consumequeue" / "T" / "0").iterdir())
    data = bytearray(path.read_bytes())
    data[3 * ENTRY_SIZE : 4 * ENTRY_SIZE] = bytes(ENTRY_SIZE)
    path.write_bytes(data)
    (partition,) = plan_queues([StoreFolder(str(tmp_path), Origin())])
    (piece,) = partition.pieces
    assert isinstance(piece, QueuePiece)
    (chunk,) = queue_chunks(piece)
    assert chunk.sound.tolist() == [True] * 3 + [False] + [True] * 4
    rows = store_rows("entries", tmp_path)
    assert [row["queue_offset"] for row in rows] == [0, 1, 2, 4, 5, 6, 7]
    assert {row["file"] for row in rows} == {f"consumequeue/T/0/{0:020d}"}


def test_our_broker_s_entries_lead_to_its_records(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_store(root)
    for number in range(25):
        append(store, "T", number % 2, b"body")
    store.close()
    rows = store_rows("entries", root)
    assert len(rows) == 25
    records = store_rows("records", root, columns="topic,queue_id,queue_offset,physical_offset")
    assert sorted((r["queue_id"], r["queue_offset"], r["position"]) for r in rows) == sorted(
        (r["queue_id"], r["queue_offset"], r["physical_offset"]) for r in records
    )


def test_conditions_choose_queues_and_rows(tmp_path: Path) -> None:
    golden = GoldenStore("clean-small", tmp_path)
    whole = store_rows("entries", golden.root)
    conditions = (
        Conditions()
        .with_texts("topic", ["OrderEvents"])
        .with_numbers("queue_id", Numbers(low=1, high=2))
        .with_numbers("queue_offset", Numbers(low=5))
    )
    rows = store_rows("entries", golden.root, conditions=conditions)
    assert rows == [
        row
        for row in whole
        if row["topic"] == "OrderEvents" and row["queue_id"] in (1, 2) and row["queue_offset"] >= 5
    ]
    assert rows


def test_tiny_queues_share_partitions_and_long_files_are_divided(tmp_path: Path) -> None:
    for queue_id in range(700):
        folder = tmp_path / "consumequeue" / "T" / str(queue_id)
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").write_bytes(pack_entries([0], [100], [0]))
    partitions = plan_queues([StoreFolder(str(tmp_path), Origin())])
    assert [len(partition.pieces) for partition in partitions] == [512, 188]
    long = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    with long.open("r+b") as file:
        file.truncate(ENTRY_SIZE * 300_000)
    partitions = plan_queues(
        [StoreFolder(str(tmp_path), Origin())],
        partition_bytes=2 * 65_536 * ENTRY_SIZE,
        is_wanted=lambda topic, queue_id: queue_id == 0,
    )
    pieces = [piece for partition in partitions for piece in partition.pieces]
    assert [(piece.begin // ENTRY_SIZE, piece.end // ENTRY_SIZE) for piece in pieces] == [
        (0, 131_072),
        (131_072, 262_144),
        (262_144, 300_000),
    ]
