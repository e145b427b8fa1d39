"""However a log is divided, its pieces together give the same records: all, and each once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.offset_audit.sources.store.folders import Origin, StoreFolder
from aerobee.offset_audit.sources.store.log_chunks import LogStop, log_chunks
from aerobee.offset_audit.sources.store.plan import LogPiece, Reach, plan_log
from aerobee.store.format.record import HostAddress, blank_record, body_crc, encode_record
from aerobee.store.format.record_layout import BODY_AT
from aerobee.store.format.scan import ScanEnd
from aerobee.store.format.tags import TagsCodes
from tests.golden_stores.conftest import NAMES, GoldenStore
from tests.support.property_runs import examples

HOST = HostAddress.parse("127.0.0.1:1")
SEGMENT_BYTES = 6000
RECORD_BYTES_MAX = 700
"""More than any record here has."""


class Read(NamedTuple):
    positions: list[int]
    faults: list[LogStop]


def read_log(
    root: Path,
    *,
    partition_bytes: int,
    chunk_bytes: int = 1 << 20,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Read:
    """Where records begin, and what is wrong, as all partitions together say it."""
    store = StoreFolder(str(root), Origin())
    positions: list[int] = []
    faults: list[LogStop] = []
    for partition in plan_log([store], partition_bytes=partition_bytes):
        for piece in partition.pieces:
            assert isinstance(piece, LogPiece)
            for chunk in log_chunks(
                piece,
                tags=TagsCodes(),
                chunk_bytes=chunk_bytes,
                record_bytes_max=record_bytes_max,
            ):
                positions += (chunk.records.positions + chunk.position).tolist()
                if chunk.stop is not None and chunk.stop.is_fault:
                    faults.append(chunk.stop)
    return Read(positions, faults)


def stamped(position: int, body: bytes, properties: bytes = b"", topic: bytes = b"T") -> bytes:
    """A record that bears its place, as a broker writes it."""
    record = bytearray(
        encode_record(
            topic=topic,
            body=body,
            properties=properties,
            born_timestamp_ms=1,
            born_host=HOST,
        )
    )
    record[28:36] = position.to_bytes(8, "big")
    return bytes(record)


def write_log(root: Path, bodies: Sequence[tuple[str, int, int]], *, base: int = 0) -> list[int]:
    """A log of records, some of whose bodies hold records that bear the very place where they lie.

    A body is (kind, size, seed). Returns where the true records begin.
    """
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    positions: list[int] = []
    segment = bytearray()
    for kind, size, seed in bodies:
        record = _record(base + len(segment), kind, size, seed)
        if len(record) + 8 > SEGMENT_BYTES - len(segment):
            segment += blank_record(SEGMENT_BYTES - len(segment))
            (folder / f"{base:020d}").write_bytes(segment.ljust(SEGMENT_BYTES, b"\0"))
            base += SEGMENT_BYTES
            segment = bytearray()
            record = _record(base, kind, size, seed)
        positions.append(base + len(segment))
        segment += record
    (folder / f"{base:020d}").write_bytes(segment.ljust(SEGMENT_BYTES, b"\0"))
    return positions


def _record(position: int, kind: str, size: int, seed: int) -> bytes:
    body = b"%d" % seed * size
    inside = position + BODY_AT
    if kind == "forged":
        # A record inside the body that nobody can tell from a true one.
        body = stamped(inside, body[: size // 2]) + body[: seed % 7]
    elif kind == "forged chain":
        first = stamped(inside, body[:11])
        second = stamped(inside + len(first), body[:5])
        body = first + second + stamped(inside + len(first) + len(second), b"")
    elif kind == "forged to the end":
        # It takes the rest of the true record, topic and properties, for its own properties.
        forged = bytearray(stamped(inside, body[:9], b"x" * 9))
        rest = len(forged) - 9 + 4 + seed % 5
        body = bytes(forged[:-9]) + b"y" * (seed % 5)
        patched = bytearray(body)
        patched[0:4] = rest.to_bytes(4, "big")
        at = len(forged) - 11
        patched[at : at + 2] = (4 + seed % 5).to_bytes(2, "big")
        body = bytes(patched)
    elif kind == "magic":
        body = (b"\xda\xa3\x20\xa7" * size)[:size]
    return stamped(position, body)


BODIES = st.lists(
    st.tuples(
        st.sampled_from(["plain", "forged", "forged chain", "forged to the end", "magic"]),
        st.integers(0, 150),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=120,
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    bodies=BODIES,
    partition_bytes=st.integers(1, 3000) | st.just(1 << 20),
    chunk_bytes=st.integers(50, 4000),
    base=st.integers(0, 3),
)
def test_any_division_gives_the_same_records_even_with_records_hidden_in_bodies(
    bodies: list[tuple[str, int, int]],
    partition_bytes: int,
    chunk_bytes: int,
    base: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("log")
    true_positions = write_log(root, bodies, base=base * SEGMENT_BYTES)
    read = read_log(root, partition_bytes=max(partition_bytes, 25), chunk_bytes=chunk_bytes)
    assert read == Read(true_positions, [])


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    bodies=BODIES,
    partition_bytes=st.integers(25, 3000),
    damages=st.lists(
        st.tuples(st.integers(0, 3 * SEGMENT_BYTES), st.integers(1, 900), st.integers(0, 255)),
        min_size=1,
        max_size=4,
    ),
    flips=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 700)), max_size=4),
)
def test_damage_is_told_once_and_passed_over_alike_in_any_division(
    bodies: list[tuple[str, int, int]],
    partition_bytes: int,
    damages: list[tuple[int, int, int]],
    flips: list[tuple[int, int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("log")
    positions = write_log(root, bodies)
    for position, length, value in damages:
        overwrite(root, position, bytes([value]) * length)
    for record, bit in flips:
        flip(root, positions[record % len(positions)] + bit // 8, bit % 8)
    whole = read_log(root, partition_bytes=1 << 30)
    assert len(set(whole.positions)) == len(whole.positions)
    assert read_log(root, partition_bytes=partition_bytes) == whole


def overwrite(root: Path, position: int, data: bytes) -> None:
    path = root / "commitlog" / f"{position // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    at = position % SEGMENT_BYTES
    if path.exists():
        segment = bytearray(path.read_bytes())
        segment[at : at + len(data)] = data
        path.write_bytes(segment[:SEGMENT_BYTES])


def flip(root: Path, position: int, bit: int) -> None:
    path = root / "commitlog" / f"{position // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    data = bytearray(path.read_bytes())
    at = position % SEGMENT_BYTES
    if at < len(data):
        data[at] ^= 1 << bit
        path.write_bytes(data)


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_apache_s_logs_are_divided_without_loss(name: str, tmp_path: Path) -> None:
    golden = GoldenStore(name, tmp_path)
    record_bytes_max = 40_000
    whole = read_log(golden.root, partition_bytes=1 << 30, record_bytes_max=record_bytes_max)
    assert len(whole.positions) == golden.manifest["commitLog"]["records"]
    assert not whole.faults, "what a crash left behind the last whole record is no fault"
    for partition_bytes in (100_000, 7_001):
        assert whole == read_log(
            golden.root,
            partition_bytes=partition_bytes,
            chunk_bytes=9_000,
            record_bytes_max=record_bytes_max,
        )


def test_one_flipped_bit_in_a_size_costs_one_record_and_is_one_fault(tmp_path: Path) -> None:
    positions = write_log(tmp_path, [("plain", 40, 1)] * 300)
    victim = 100
    flip(tmp_path, positions[victim] + 2, 1)  # 512 more: the end of another record
    read = read_log(tmp_path, partition_bytes=1000)
    assert read.positions == positions[:victim] + positions[victim + 1 :]
    assert [(fault.position, fault.resumed_at) for fault in read.faults] == [
        (positions[victim], positions[victim + 1])
    ]


def test_a_record_of_another_place_is_a_fault_and_its_neighbours_are_not(tmp_path: Path) -> None:
    positions = write_log(tmp_path, [("plain", 40, 1)] * 60)
    flip(tmp_path, positions[7] + 35, 0)
    read = read_log(tmp_path, partition_bytes=1000)
    assert read.positions == positions[:7] + positions[8:]
    assert [(fault.position, fault.why) for fault in read.faults] == [
        (positions[7], ScanEnd.MISPLACED)
    ]


def test_a_record_with_an_impossible_topic_is_a_fault_and_its_neighbours_are_not(
    tmp_path: Path,
) -> None:
    positions = write_log(tmp_path, [("plain", 40, 1)] * 30)
    at = positions[3] + BODY_AT + 40 * 1 + 1
    overwrite(tmp_path, at, b"\0")
    read = read_log(tmp_path, partition_bytes=1 << 20)
    assert read.positions == positions[:3] + positions[4:]
    assert [(fault.position, fault.why) for fault in read.faults] == [
        (positions[3], ScanEnd.BAD_TOPIC)
    ]


def test_zeros_in_a_full_segment_are_a_fault_and_at_the_log_s_end_they_are_not(
    tmp_path: Path,
) -> None:
    positions = write_log(tmp_path, [("plain", 100, 1)] * 60)
    last = positions[-1]
    assert positions[10] < SEGMENT_BYTES < last
    overwrite(tmp_path, last, bytes(50))
    assert not read_log(tmp_path, partition_bytes=1 << 20).faults
    overwrite(tmp_path, positions[10], bytes(SEGMENT_BYTES))
    read = read_log(tmp_path, partition_bytes=1 << 20)
    assert [(fault.position, fault.resumed_at) for fault in read.faults] == [(positions[10], None)]
    assert read.positions[:11] == [*positions[:10], SEGMENT_BYTES]


def test_a_long_record_is_read_whole_however_small_the_buffers_are(tmp_path: Path) -> None:
    positions = write_log(tmp_path, [("plain", 3, 1), ("plain", 2500, 1), ("plain", 3, 1)])
    for partition_bytes in (300, 1 << 20):
        read = read_log(
            tmp_path, partition_bytes=partition_bytes, chunk_bytes=100, record_bytes_max=4000
        )
        assert read == Read(positions, [])


def test_a_segment_that_was_deleted_gives_no_rows(tmp_path: Path) -> None:
    write_log(tmp_path, [("plain", 100, 1)] * 60)
    store = StoreFolder(str(tmp_path), Origin())
    partitions = plan_log([store], partition_bytes=1000)
    first = tmp_path / "commitlog" / f"{0:020d}"
    first.unlink()
    chunks = list(log_chunks(partitions[0].pieces[0], tags=TagsCodes()))
    assert not chunks


def test_only_the_wanted_part_of_a_log_is_planned(tmp_path: Path) -> None:
    write_log(tmp_path, [("plain", 100, 1)] * 200)
    store = StoreFolder(str(tmp_path), Origin())
    planned = plan_log([store], partition_bytes=1000, reach=Reach(7_500, 9_200))
    pieces = [piece for partition in planned for piece in partition.pieces]
    assert [(piece.begin, piece.end) for piece in pieces] == [
        (7_000, 8_000),
        (8_000, 9_000),
        (9_000, 10_000),
    ]


def test_a_body_with_a_sound_checksum_is_taken_for_what_it_is() -> None:
    """The forged records of these tests are as good as true ones."""
    assert body_crc(b"x") == int.from_bytes(stamped(0, b"x")[8:12], "big")
