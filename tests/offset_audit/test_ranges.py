"""What the ranges of a store say: the same however it is divided, the same from log and files."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.folders import StoreFolder, find_stores
from aerobee.offset_audit.sources.store.log_lookup import LogLookup
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.offset_audit.sources.store.plan import LogPiece, QueuePiece, plan_log, plan_queues
from aerobee.offset_audit.sources.store.ranges_digest import (
    Sums,
    mix_keys,
    mix_messages,
    sum_groups,
)
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts, store_facts
from aerobee.offset_audit.sources.store.ranges_log import LogRanges
from aerobee.offset_audit.sources.store.ranges_queues import LogQueueRanges, QueueMessages
from aerobee.offset_audit.sources.store.ranges_reading import (
    LogWork,
    QueueWork,
    Work,
    rows_of,
)
from aerobee.offset_audit.sources.store.ranges_rows import (
    COLUMNS,
    INDEX_RANGES,
    LOG_RANGES,
    MINUTES,
    QUEUE_RANGES,
    SUMMARY_TABLES,
)
from aerobee.offset_audit.sources.store.record_search import RECORD_BYTES_MAX
from aerobee.offset_audit.tables import LOG_RANGE_BYTES
from aerobee.offset_audit.tables import LOG_STEP_BYTES as STEP_BYTES
from tests.golden_stores.conftest import NAMES, GoldenStore
from tests.offset_audit.store_rows import store_rows
from tests.support.damaged_stores import make_store
from tests.support.property_runs import examples

Row = dict[str, Any]
Totals = dict[tuple[Any, ...], tuple[int, Decimal]]


@pytest.fixture(scope="module", params=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GoldenStore:
    """Each store once: nothing here writes."""
    return GoldenStore(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> GoldenStore:
    return GoldenStore("clean-small", tmp_path_factory.mktemp("clean"))


def facts_of(root: Path) -> StoreFacts:
    return store_facts(find_stores([str(root)])[0])


def rows(works: Sequence[Work], table: str) -> list[Row]:
    batches = [batch for name, batch in rows_of(works, frozenset({table})) if name == table]
    return [row for batch in batches for row in batch.to_pylist()]


def totals(found: Iterable[Row], names: Sequence[str], count: str) -> Totals:
    """Messages or keys, and digests, by the columns `names`."""
    sums: dict[tuple[Any, ...], list[Any]] = defaultdict(lambda: [0, Decimal(0)])
    for row in found:
        both = sums[tuple(row[name] for name in names)]
        both[0] += row[count]
        both[1] += row["digest"]
    return {key: (both[0], both[1]) for key, both in sums.items()}


def by_source(found: Iterable[Row], names: Sequence[str], count: str) -> dict[str, Totals]:
    parted: dict[str, list[Row]] = defaultdict(list)
    for row in found:
        parted[row["source"]].append(row)
    return {source: totals(some, names, count) for source, some in parted.items()}


BLOCK = ("topic", "queue_id", "block")


# ------------------------------------------------------------------------------ golden stores


def test_the_queues_of_an_apache_store_hold_what_its_log_says(golden: GoldenStore) -> None:
    sums = by_source(store_rows(QUEUE_RANGES, golden.root), BLOCK, "messages")
    differing = {
        key[0] for key in sums["LOG"].keys() | sums["ENTRIES"].keys()
        if sums["LOG"].get(key) != sums["ENTRIES"].get(key)
    }  # fmt: skip
    # There a queue's last entries were zeroed together with the log's end.
    assert differing == ({"PaymentNotices"} if golden.name == "crashed-torn" else set())


def test_the_log_gives_as_many_messages_of_each_queue_as_apache_counts(golden: GoldenStore) -> None:
    counted: Counter[tuple[str, int]] = Counter()
    for row in store_rows(QUEUE_RANGES, golden.root):
        if row["source"] == "LOG":
            counted[row["topic"], row["queue_id"]] += row["messages"]
    expected = {
        (topic, int(queue_id)): queue["maxOffset"] - queue["minOffset"]
        for topic, queues in golden.manifest["topics"].items()
        for queue_id, queue in queues.items()
        if queue["maxOffset"] > queue["minOffset"]
    }
    assert counted == expected
    assert counted.total() == sum(row["messages"] for row in store_rows(MINUTES, golden.root))


def test_the_index_of_an_apache_store_gives_all_keys_of_its_log(golden: GoldenStore) -> None:
    sums = by_source(store_rows(INDEX_RANGES, golden.root), ("block",), "keys")
    assert sums["LOG"] == sums["INDEX"]
    assert sum(keys for keys, _ in sums["LOG"].values()) > 1000


def test_an_apache_store_has_no_faults(golden: GoldenStore) -> None:
    assert store_rows("faults", golden.root, checkBodies="true") == []


def test_log_ranges_count_each_record_and_end_where_the_log_ends(golden: GoldenStore) -> None:
    log = golden.manifest["commitLog"]
    found = store_rows(LOG_RANGES, golden.root)
    steps = range(log["minOffset"], log["maxOffset"], STEP_BYTES)
    assert [row["begin"] for row in found] == list(steps)
    assert [row["end"] for row in found] == [*steps[1:], log["maxOffset"]]
    assert sum(row["records"] for row in found) == log["records"]
    assert sum(row["blanks"] for row in found) == len(log["segments"]) - 1
    assert all(row["checksum"] is not None for row in found)


def test_one_reading_gives_what_each_table_gives_alone(clean: GoldenStore) -> None:
    together: dict[str, list[Row]] = defaultdict(list)
    for row in store_rows("summaries", clean.root, checkBodies="true"):
        table = row["table"]
        others = set(row) - set(COLUMNS[table].names) - {"table"}
        assert all(row[name] is None for name in others)
        together[table].append({name: row[name] for name in COLUMNS[table].names})
    for table in SUMMARY_TABLES:
        alone = store_rows(table, clean.root, checkBodies="true")
        assert sorted(map(repr, alone)) == sorted(map(repr, together[table]))


# ----------------------------------------------------------------------------------- splitting


@pytest.mark.thorough
@settings(max_examples=examples(6))
@given(partition_bytes=st.integers(40_000, 400_000), seed=st.integers(0, 1000))
def test_sums_do_not_depend_on_how_a_log_is_divided_nor_on_the_order(
    clean: GoldenStore, partition_bytes: int, seed: int
) -> None:
    facts = facts_of(clean.root)
    works = [
        LogWork(facts, (piece,), False, RECORD_BYTES_MAX)
        for partition in plan_log([facts.store], partition_bytes=partition_bytes)
        for piece in partition.pieces
        if isinstance(piece, LogPiece)
    ]
    random.Random(seed).shuffle(works)
    whole = [row for row in store_rows(QUEUE_RANGES, clean.root) if row["source"] == "LOG"]
    assert totals(rows(works, QUEUE_RANGES), BLOCK, "messages") == totals(whole, BLOCK, "messages")
    keys = [row for row in store_rows(INDEX_RANGES, clean.root) if row["source"] == "LOG"]
    assert totals(rows(works, INDEX_RANGES), ["block"], "keys") == totals(keys, ["block"], "keys")
    minutes = Counter[tuple[str, int]]()
    for row in rows(works, MINUTES):
        minutes[row["topic"], row["minute"]] += row["messages"]
    assert minutes == {
        (row["topic"], row["minute"]): row["messages"] for row in store_rows(MINUTES, clean.root)
    }


@settings(max_examples=examples(6))
@given(seed=st.integers(0, 1000))
def test_sums_do_not_depend_on_how_a_queue_is_divided(clean: GoldenStore, seed: int) -> None:
    chance = random.Random(seed)
    facts = facts_of(clean.root)
    works = []
    for partition in plan_queues([facts.store]):
        for piece in partition.pieces:
            assert isinstance(piece, QueuePiece)
            cut = piece.begin + 20 * chance.randrange((piece.end - piece.begin) // 20 + 1)
            for begin, end in ((piece.begin, cut), (cut, piece.end)):
                fields = (piece.store, piece.topic, piece.queue_id, piece.file, begin, end)
                works.append(
                    QueueWork(facts, (QueuePiece(*fields, piece.is_first, piece.is_open),))
                )
    chance.shuffle(works)
    whole = [row for row in store_rows(QUEUE_RANGES, clean.root) if row["source"] == "ENTRIES"]
    assert totals(rows(works, QUEUE_RANGES), BLOCK, "messages") == totals(whole, BLOCK, "messages")


RANGE_BYTES = 5 * STEP_BYTES
"""Not a size that segments end with."""


def checksums(
    root: Path,
    partition_bytes: int = 1 << 30,
    range_bytes: int = RANGE_BYTES,
    log_end: int | None = None,
) -> dict[tuple[int, int], int]:
    """By [begin, end), as one reader gives them; up to `log_end` if it is given."""
    facts = facts_of(root)
    ranges = LogRanges(facts.store, log_end or facts.bounds.end, range_bytes=range_bytes)
    from aerobee.offset_audit.sources.store.log_chunks import log_chunks

    for partition in plan_log([facts.store], partition_bytes=partition_bytes):
        for piece in partition.pieces:
            assert isinstance(piece, LogPiece)
            ranges.begin_piece(piece)
            for chunk in log_chunks(piece, tags=facts.tags()):
                ranges.add(chunk)
    found = [row for batch in ranges.finish() for row in batch.to_pylist()]
    return {(row["begin"], row["end"]): row["checksum"] for row in found}


def flip_bit(store: GoldenStore, segment_number: int, at: int) -> int:
    """Returns its place in the log."""
    segment = sorted(Path(store.root, "commitlog").iterdir())[segment_number]
    data = bytearray(segment.read_bytes())
    data[at] ^= 1
    segment.write_bytes(data)
    return int(segment.name) + at


def test_ranges_lie_on_the_grid_and_the_last_one_in_steps(clean: GoldenStore) -> None:
    end = clean.manifest["commitLog"]["maxOffset"]
    last = end // RANGE_BYTES * RANGE_BYTES
    borders = [*range(0, last, RANGE_BYTES), *range(last, end, STEP_BYTES), end]
    assert list(checksums(clean.root)) == list(pairwise(borders))


def test_checksums_of_ranges_are_equal_however_a_log_is_read(clean: GoldenStore) -> None:
    assert checksums(clean.root, 50_000) == checksums(clean.root)


def test_a_flipped_bit_changes_the_checksum_of_its_range_alone(
    clean: GoldenStore, tmp_path: Path
) -> None:
    copy = GoldenStore("clean-small", tmp_path)
    place = flip_bit(copy, 1, 100_000)
    before, after = checksums(clean.root), checksums(copy.root)
    assert before.keys() == after.keys()
    differing = [span for span in before if before[span] != after[span]]
    assert len(differing) == 1
    assert differing[0][0] <= place < differing[0][1]


def test_logs_that_end_at_different_places_are_comparable_up_to_the_last_step_of_both(
    clean: GoldenStore, tmp_path: Path
) -> None:
    copy = GoldenStore("clean-small", tmp_path)
    place = flip_bit(copy, 1, 100_000)
    longer = checksums(clean.root, range_bytes=LOG_RANGE_BYTES)
    log_end = clean.manifest["commitLog"]["maxOffset"] - 3 * STEP_BYTES
    shorter = checksums(copy.root, range_bytes=LOG_RANGE_BYTES, log_end=log_end)
    common = longer.keys() & shorter.keys()
    assert len(common) == len(shorter) - 1 == len(longer) - 4
    differing = [span for span in common if longer[span] != shorter[span]]
    assert differing == [(place // STEP_BYTES * STEP_BYTES, (place // STEP_BYTES + 1) * STEP_BYTES)]


# ------------------------------------------------------------------------------------- digests

COLUMN = st.lists(st.integers(-(1 << 62), 1 << 62), min_size=1, max_size=40)


@given(numbers=st.lists(st.integers(0, (1 << 64) - 1), min_size=1), cut=st.integers(0, 100))
def test_sums_are_exact_and_so_are_their_decimals(numbers: list[int], cut: int) -> None:
    values = np.array(numbers, np.uint64)
    cut = cut % len(numbers)
    starts = np.array([0, cut] if cut else [0], np.int64)
    sums = sum_groups(values, starts)
    expected = [sum(numbers[:cut]), sum(numbers[cut:])] if cut else [sum(numbers)]
    assert [sums[index] for index in range(len(sums))] == expected
    assert sums.to_arrow().to_pylist() == [Decimal(number) for number in expected]


def test_decimals_carry_from_the_lower_64_bits_to_the_upper() -> None:
    halves = np.array([(1 << 63), (1 << 40) - 1], np.uint64)
    sums = Sums(halves, halves)
    assert [int(value) for value in sums.to_arrow().to_pylist()] == [sums[0], sums[1]]


@given(
    row=st.tuples(*[st.integers(-(1 << 31), 1 << 31)] * 4),
    column=st.integers(0, 3),
    bit=st.integers(0, 62),
)
def test_a_digest_sees_every_single_bit(row: tuple[int, ...], column: int, bit: int) -> None:
    other = list(row)
    other[column] ^= 1 << bit
    before, after = (
        int(mix_messages(*(np.array([value], np.int64) for value in values))[0])
        for values in (row, other)
    )
    assert before != after


def test_digests_of_other_keys_or_other_places_differ() -> None:
    hashes = np.repeat(np.arange(300, dtype=np.int32), 300)
    positions = np.tile(np.arange(300, dtype=np.int64), 300)
    assert len(np.unique(mix_keys(hashes, positions))) == 90_000


# ------------------------------------------------------------------------- queues out of order

MESSAGES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(65_530, 65_545)),
    min_size=1,
    max_size=60,
)


@given(messages=MESSAGES)
def test_duplicates_and_disorder_are_counted_exactly(messages: list[tuple[int, int, int]]) -> None:
    count = len(messages)
    topics, queues, offsets = (np.array(column, np.int64) for column in zip(*messages, strict=True))
    positions = np.arange(count) * 100
    zeros = np.zeros(count, np.int64)
    reducer = LogQueueRanges(StoreFolder("s", find_origin()))
    taken = QueueMessages(
        ["a", "b"], topics, queues, offsets, positions, zeros + 100, zeros, positions
    )
    assert list(reducer.add(taken)) == []
    found = {
        (row["topic"], row["queue_id"], row["block"]): row
        for batch in reducer.finish()
        for row in batch.to_pylist()
    }
    expected: dict[tuple[str, int, int], list[tuple[int, int]]] = defaultdict(list)
    falls: Counter[tuple[str, int, int]] = Counter()
    last: dict[tuple[int, int], int] = {}
    for place, (topic, queue, offset) in enumerate(messages):
        key = ("ab"[topic], queue, offset // 65_536)
        expected[key].append((offset, place * 100))
        falls[key] += last.get((topic, queue), offset) > offset
        last[topic, queue] = offset
    assert found.keys() == expected.keys()
    for key, some in expected.items():
        row = found[key]
        assert row["messages"] == len(some)
        assert row["distinct_messages"] == len({offset for offset, _ in some})
        assert (row["first_offset"], row["last_offset"]) == (min(some)[0], max(some)[0])
        places = [place for _, place in some]
        assert (row["first_position"], row["last_position"]) == (min(places), max(places))
        assert row["disorders"] == falls[key]


def find_origin() -> Any:
    from aerobee.offset_audit.sources.store.folders import Origin

    return Origin("c", "b", 1)


@pytest.mark.parametrize("is_clean", [True, False])
def test_planning_a_segment_of_a_gibibyte_reads_next_to_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool
) -> None:
    make_store(tmp_path / "store", close=is_clean)
    root = tmp_path / "store"
    whole = facts_of(root)
    with LogLookup(whole.store) as lookup:
        end = lookup.end
    newest = sorted((root / "commitlog").iterdir())[-1]
    with newest.open("r+b") as file:
        file.truncate(1 << 30)
    bytes_read = 0
    pread = os.pread

    def counted(descriptor: int, size: int, at: int) -> bytes:
        nonlocal bytes_read
        data = pread(descriptor, size, at)
        bytes_read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    facts = facts_of(root)
    assert (facts.bounds, facts.last_stored_ms) == (whole.bounds, whole.last_stored_ms)
    with LogLookup(facts.store) as lookup:
        assert lookup.end == end
    assert 0 < bytes_read < 32 << 20, "a few windows at the end, whatever the segment's length"


def test_the_used_end_of_a_file_is_found_over_holes_and_written_zeros(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(b"\1" * 10_000)
        file.seek(1 << 20)
        file.write(b"\2" + bytes(300_000))
        file.truncate(1 << 30)
    whole = StoreFile(str(path), 4096, 1 << 30)
    with OpenFile(whole) as opened:
        assert opened.used_end(4096, whole.end) == 4096 + (1 << 20) + 1
        assert opened.used_end(4096, 4096 + 20_000) == 4096 + 10_000
        assert opened.used_end(4096 + 20_000, 4096 + 40_000) == 4096 + 20_000
