"""Damages done to files of a store at rest: each a few bytes, and the finding they must give."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from isal.isal_zlib import crc32

from aerobee.broker.offsets.entries import JOURNAL_TOPIC
from aerobee.store.format.content_check import with_check
from aerobee.store.format.record_layout import (
    BODY_AT,
    BODY_CRC_AT,
    BODY_LENGTH_AT,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    PREPARED_TRANSACTION_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_AT,
    SIZE_AT,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
)
from tests.offset_audit.damages.base_store import ENTRIES_PER_FILE, INDEX_SLOTS, SEGMENT_BYTES
from tests.offset_audit.damages.damage import Expected, StoreDamage

ENTRY = struct.Struct(">qiq")
BLANK_SIZE = 0x7FFF_FFFF
"""In entries before a queue's first message."""
INDEX_HEADER_BYTES = 40
INDEX_ENTRY = struct.Struct(">iqii")
QUEUE_FILE_BYTES = ENTRIES_PER_FILE * ENTRY.size
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Place:
    """A record of the log, as its queue's entry says."""

    root: Path
    topic: str
    queue_id: int
    queue_offset: int
    position: int
    size: int
    segment_bytes: int = SEGMENT_BYTES

    def read(self, at: int, count: int) -> bytes:
        with self._segment().open("rb") as file:
            file.seek(self.position % self.segment_bytes + at)
            return file.read(count)

    def write(self, at: int, data: bytes) -> None:
        with self._segment().open("r+b") as file:
            file.seek(self.position % self.segment_bytes + at)
            file.write(data)

    def number(self, at: int, layout: str) -> int:
        value: int = struct.unpack(layout, self.read(at, struct.calcsize(layout)))[0]
        return value

    def flip(self, at: int, bit: int = 0) -> None:
        self.write(at, bytes([self.read(at, 1)[0] ^ (1 << bit)]))

    def _segment(self) -> Path:
        base = self.position // self.segment_bytes * self.segment_bytes
        return self.root / "commitlog" / f"{base:020d}"


def queue_file(root: Path, topic: str, queue_id: int, queue_offset: int) -> Path:
    base = queue_offset // ENTRIES_PER_FILE * QUEUE_FILE_BYTES
    return root / "consumequeue" / topic / str(queue_id) / f"{base:020d}"


def entry_at(root: Path, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int]:
    """Position, size, tags code."""
    with queue_file(root, topic, queue_id, queue_offset).open("rb") as file:
        file.seek(queue_offset % ENTRIES_PER_FILE * ENTRY.size)
        position, size, tags_code = ENTRY.unpack(file.read(ENTRY.size))
    return position, size, tags_code


def write_entry(
    root: Path, topic: str, queue_id: int, queue_offset: int, entry: tuple[int, int, int]
) -> None:
    with queue_file(root, topic, queue_id, queue_offset).open("r+b") as file:
        file.seek(queue_offset % ENTRIES_PER_FILE * ENTRY.size)
        file.write(ENTRY.pack(*entry))


def place(root: Path, topic: str, queue_id: int, queue_offset: int) -> Place:
    position, size, _ = entry_at(root, topic, queue_id, queue_offset)
    return Place(root, topic, queue_id, queue_offset, position, size)


def places(root: Path, segment_bytes: int = SEGMENT_BYTES) -> Iterator[Place]:
    """All records that queues list, the journals' too."""
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        first = int(path.name) // ENTRY.size
        for number, (position, size, _) in enumerate(ENTRY.iter_unpack(path.read_bytes())):
            if size and size != BLANK_SIZE:
                topic, queue_id = path.parts[-3], int(path.parts[-2])
                yield Place(root, topic, queue_id, first + number, position, size, segment_bytes)


def newest_store_ms(root: Path) -> int:
    """When the last record was stored."""
    return max(one.number(STORE_TIMESTAMP_AT, ">q") for one in places(root))


def make_earlier(root: Path, by_ms: int) -> None:
    """As if all messages had been stored that long before: later ones are none of the future."""
    for one in list(places(root)):
        earlier_ms = one.number(STORE_TIMESTAMP_AT, ">q") - by_ms
        one.write(STORE_TIMESTAMP_AT, struct.pack(">q", earlier_ms))
    # Its first two numbers are times of the newest messages, too: a broker stores nothing earlier.
    path = root / "checkpoint"
    before = path.read_bytes()
    earlier = (at_ms - by_ms for at_ms in struct.unpack_from(">qq", before))
    path.write_bytes(struct.pack(">qq", *earlier) + before[16:])


# ------------------------------------------------------------------------------------ the log


def flip_bit_in_body(root: Path) -> None:
    place(root, "orders", 1, 150).flip(BODY_AT + 9, 3)


def flip_bit_in_size(root: Path) -> None:
    place(root, "payments", 0, 77).flip(SIZE_AT + 3, 5)


def lose_segment(root: Path) -> None:
    (root / "commitlog" / f"{2 * SEGMENT_BYTES:020d}").unlink()


def lose_first_segment(root: Path) -> None:
    (root / "commitlog" / f"{0:020d}").unlink()


HEADER_FLIPS: dict[tuple[str, int, int], tuple[int, int]] = {
    # (topic, queue, queue offset): (byte of the header, bit of that byte)
    ("orders", 0, 20): (SIZE_AT, 6),
    ("orders", 0, 60): (MAGIC_AT, 7),
    ("orders", 0, 100): (BODY_CRC_AT, 5),
    ("orders", 0, 140): (QUEUE_ID_AT, 7),
    ("orders", 0, 180): (FLAG_AT, 7),
    ("orders", 0, 220): (QUEUE_OFFSET_AT, 7),
    ("orders", 0, 260): (PHYSICAL_OFFSET_AT, 7),
    ("orders", 0, 300): (SYS_FLAG_AT + 3, 2),
    ("orders", 0, 340): (BORN_TIMESTAMP_AT, 7),
    ("orders", 1, 20): (BORN_HOST_AT, 7),
    ("orders", 1, 60): (STORE_TIMESTAMP_AT, 7),
    ("orders", 1, 100): (STORE_TIMESTAMP_AT, 6),
    ("orders", 1, 140): (STORE_TIMESTAMP_AT + 3, 1),
    ("orders", 1, 180): (STORE_HOST_AT, 7),
    ("orders", 1, 220): (RECONSUME_TIMES_AT, 7),
    ("orders", 1, 260): (PREPARED_TRANSACTION_OFFSET_AT, 7),
    ("orders", 1, 300): (BODY_LENGTH_AT, 7),
    ("orders", 2, 100): (QUEUE_ID_AT + 3, 0),
    ("orders", 2, 200): (QUEUE_OFFSET_AT + 1, 3),
}
"""Every fixed field of the header, each in another record; sign bits first, as they overflow."""


def flip_headers(root: Path) -> None:
    found = {where: place(root, *where) for where in HEADER_FLIPS}
    for where, (at, bit) in HEADER_FLIPS.items():
        found[where].flip(at, bit)


def messages_of_segment(root: Path, number: int) -> int:
    """How many messages begin in a segment."""
    return sum(one.position // SEGMENT_BYTES == number for one in places(root))


def repeat_queue_offset(root: Path) -> None:
    """A record says the queue offset of the one before it in its queue."""
    place(root, "orders", 2, 201).write(QUEUE_OFFSET_AT, struct.pack(">q", 200))


def set_clock_back(root: Path) -> None:
    """As if the clock had been an hour ahead until this record was stored."""
    log = sorted(places(root), key=lambda one: one.position)
    for one in log[: len(log) // 2]:
        ahead_ms = one.number(STORE_TIMESTAMP_AT, ">q") + HOUR_MS
        one.write(STORE_TIMESTAMP_AT, struct.pack(">q", ahead_ms))


def change_body_and_checksum(root: Path) -> None:
    """A record that is whole in itself and not the one that the other replica has."""
    one = place(root, "orders", 3, 260)
    one.flip(BODY_AT + 2, 1)
    length = one.number(BODY_LENGTH_AT, ">i")
    checksum = crc32(one.read(BODY_AT, length)) & 0x7FFF_FFFF
    one.write(BODY_CRC_AT, struct.pack(">I", checksum))


# ------------------------------------------------------------------------ queue and index files


def flip_bit_in_tags_code(root: Path, queue_offset: int = 123) -> None:
    position, size, tags_code = entry_at(root, "orders", 0, queue_offset)
    write_entry(root, "orders", 0, queue_offset, (position, size, tags_code ^ 4))


def point_entry_to_nothing(root: Path) -> None:
    position, size, tags_code = entry_at(root, "payments", 1, 40)
    write_entry(root, "payments", 1, 40, (position + 17, size, tags_code))


def cut_queue_file(root: Path) -> None:
    """The last file of a queue ends after 30 of its 100 entries."""
    path = queue_file(root, "orders", 0, 399)
    path.write_bytes(path.read_bytes()[: 30 * ENTRY.size])


def lose_queue_file(root: Path) -> None:
    queue_file(root, "payments", 0, 100).unlink()


def flip_bit_in_index_slot(root: Path) -> None:
    """The slot of a chain of keys leads to an entry that there is not."""
    path = second_index_file(root)
    data = bytearray(path.read_bytes())
    at, newest = first_used_slot(data)
    struct.pack_into(">i", data, at, newest ^ (1 << 30))
    path.write_bytes(data)


def second_index_file(root: Path) -> Path:
    return sorted((root / "index").iterdir())[1]


def first_used_slot(data: bytes | bytearray) -> tuple[int, int]:
    """Its place in the file, and the number of the newest entry of its chain."""
    for at in range(INDEX_HEADER_BYTES, INDEX_HEADER_BYTES + 4 * INDEX_SLOTS, 4):
        (newest,) = struct.unpack_from(">i", data, at)
        if newest:
            return at, newest
    raise AssertionError("no slot is used")


def keys_of_first_slot(root: Path) -> int:
    """How many keys lie in the chain of that slot: ids of messages are never the same, so neither
    is their number."""
    data = second_index_file(root).read_bytes()
    found = set()
    _, number = first_used_slot(data)
    while number:
        at = INDEX_HEADER_BYTES + 4 * INDEX_SLOTS + INDEX_ENTRY.size * number
        key_hash, position, _, number = INDEX_ENTRY.unpack_from(data, at)
        found.add((key_hash, position))
    return len(found)


# ---------------------------------------------------------------------------------- small files


def change_offsets(change: Callable[[dict[str, dict[str, int]]], object]) -> Callable[[Path], None]:
    """In the table of committed offsets, as if a broker had written it; the journal in the log says
    something else."""

    def do(root: Path) -> None:
        path = root / "config" / "consumerOffset.json"
        document = json.loads(path.read_bytes())
        change(document["offsetTable"])
        document["aerobeeJournal"]["contentCheck"] = "00000000"
        path.write_bytes(with_check(json.dumps(document, separators=(",", ":")).encode()))

    return do


def forget_offsets(root: Path) -> None:
    """By hand, so that the table's checksum is wrong."""
    path = root / "config" / "consumerOffset.json"
    document = json.loads(path.read_bytes())
    del document["offsetTable"]["orders@billing"]
    path.write_text(json.dumps(document, separators=(",", ":")))


def lose_groups(root: Path) -> None:
    (root / "config" / "subscriptionGroup.json").unlink()


def forget_topic(root: Path) -> None:
    """One that has messages and that no group reads any more."""
    path = root / "config" / "topics.json"
    document = json.loads(path.read_bytes())
    del document["topicConfigTable"]["payments"]
    path.write_text(json.dumps(document))
    change_offsets(lambda table: table.pop("payments@billing"))(root)


def empty_journal_record(root: Path) -> None:
    """A body of zeros, with the checksum of zeros."""
    one = place(root, JOURNAL_TOPIC, 0, 1)
    length = one.number(BODY_LENGTH_AT, ">i")
    one.write(BODY_AT, bytes(length))
    one.write(BODY_CRC_AT, struct.pack(">I", crc32(bytes(length)) & 0x7FFF_FFFF))


def take_a_queue(root: Path) -> None:
    """By hand, in the table of topics."""
    path = root / "config" / "topics.json"
    document = json.loads(path.read_bytes())
    document["topicConfigTable"]["orders"] |= {"readQueueNums": 3, "writeQueueNums": 3}
    path.write_text(json.dumps(document))


def rewind(table: dict[str, dict[str, int]]) -> None:
    table["orders@billing"]["1"] = 350


def skip(table: dict[str, dict[str, int]]) -> None:
    table["orders@shipping"]["3"] = 290


def commit_beyond_the_end(table: dict[str, dict[str, int]]) -> None:
    table["payments@billing"]["0"] = 1_000


def tear_topics(root: Path) -> None:
    path = root / "config" / "topics.json"
    path.write_bytes(path.read_bytes()[:300])


SINGLE_STORE: tuple[StoreDamage, ...] = (
    StoreDamage(
        "body-bit",
        flip_bit_in_body,
        Expected("CORRUPT", "CRITICAL", "orders", 1, None, 1, "BAD_CRC"),
    ),
    StoreDamage(
        "size-bit",
        flip_bit_in_size,
        Expected("CORRUPT", "CRITICAL", "payments", 0, None, 1, "BAD_LENGTHS"),
    ),
    StoreDamage(
        "missing-segment",
        lose_segment,
        Expected("CORRUPT", "CRITICAL", None, None, None, None, "MISSING_SEGMENT"),
    ),
    StoreDamage(
        "first-segment-missing",
        lose_first_segment,
        Expected("CORRUPT", "WARNING", None, None, None, None, "LOST_BEGIN"),
    ),
    StoreDamage(
        "duplicate-offset",
        repeat_queue_offset,
        Expected("DUPLICATE", "ERROR", "orders", 2, None, 1, "200"),
    ),
    StoreDamage(
        "clock-jump", set_clock_back, Expected("CLOCK", "WARNING", None, None, None, 1, "set back")
    ),
    StoreDamage(
        "tags-code-bit",
        flip_bit_in_tags_code,
        Expected("CORRUPT", "ERROR", "orders", 0, None, 1, "TAGS_CODE"),
    ),
    StoreDamage(
        "entry-to-nothing",
        point_entry_to_nothing,
        Expected("CORRUPT", "ERROR", "payments", 1, None, 1, "BAD_ENTRY"),
    ),
    StoreDamage(
        "cut-queue-file",
        cut_queue_file,
        Expected("MISSING_ENTRY", "ERROR", "orders", 0, None, 70, "330"),
    ),
    StoreDamage(
        "missing-queue-file",
        lose_queue_file,
        Expected("MISSING_ENTRY", "ERROR", "payments", 0, None, 100, "100"),
    ),
    StoreDamage(
        "index-slot-bit",
        flip_bit_in_index_slot,
        Expected("INDEX_MISSING", "ERROR", None, None, None, None, "INDEX_SLOT"),
    ),
    StoreDamage(
        "rewound-commit",
        change_offsets(rewind),
        Expected("REWOUND", "ERROR", "orders", 1, "billing", 50, "journal"),
    ),
    StoreDamage(
        "skipped-commits",
        change_offsets(skip),
        Expected("SKIPPED", "CRITICAL", "orders", 3, "shipping", 90, "journal"),
    ),
    StoreDamage(
        "offset-beyond-end",
        change_offsets(commit_beyond_the_end),
        Expected("OUT_OF_RANGE_HIGH", "ERROR", "payments", 0, "billing", 600, "1000"),
    ),
    StoreDamage(
        "torn-config",
        tear_topics,
        Expected("BAD_CONFIG", "ERROR", None, None, None, None, "topics"),
    ),
    StoreDamage(
        "offsets-forgotten",
        forget_offsets,
        Expected("BAD_CONFIG", "WARNING", None, None, None, None, "is not what a broker wrote"),
    ),
    StoreDamage(
        "groups-lost",
        lose_groups,
        Expected("BAD_CONFIG", "WARNING", None, None, None, None, "group billing and 1 more have"),
    ),
    StoreDamage(
        "topic-forgotten",
        forget_topic,
        Expected("BAD_CONFIG", "WARNING", None, None, None, None, "topic payments has queues"),
    ),
    StoreDamage(
        "journal-record-emptied",
        empty_journal_record,
        Expected("CORRUPT", "ERROR", "AEROBEE_OFFSET_JOURNAL", 0, None, None, "BAD_JOURNAL"),
    ),
    StoreDamage(
        "topic-with-fewer-queues",
        take_a_queue,
        Expected("QUEUE_BEYOND", "WARNING", "orders", 3, None, 400, "only 3 queues"),
    ),
)
