"""Random damages of a store at rest: one of a kind, to a random file, at a random place."""

from __future__ import annotations

import filecmp
import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isal.isal_zlib import crc32

from aerobee.store.format.json_config import parse_object, render_json
from aerobee.store.format.record_layout import BODY_AT, BODY_CRC_AT, BODY_LENGTH_AT
from tests.offset_audit.damages.base_store import BaseStores
from tests.offset_audit.damages.store_damages import Place, places
from tests.support.sparse_copy import copy_file

RANGE_BYTES_MAX = 64
JOURNAL_PREFIX = "AEROBEE_"
NOT_STORED = {"lock"}
"""Files that hold nothing."""

Change = Callable[[Path, BaseStores, random.Random], str | None]
"""Done to a store; says what was done, or None if there was nothing to do it to."""


def random_file(root: Path, chance: random.Random) -> Path:
    """Each folder is as likely as any other, and so is each file in it."""
    folders: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name not in NOT_STORED and path.stat().st_size:
            folders.setdefault(path.relative_to(root).parts[0], []).append(path)
    return chance.choice(folders[chance.choice(sorted(folders))])


def read_at(path: Path, at: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(size)


def write_at(path: Path, at: int, data: bytes) -> None:
    """Holes stay holes."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip_bit(root: Path, _bases: BaseStores, chance: random.Random) -> str:
    path = random_file(root, chance)
    at, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
    write_at(path, at, bytes([read_at(path, at, 1)[0] ^ 1 << bit]))
    return f"{path.relative_to(root)}: bit {bit} of byte {at}"


def cut(root: Path, _bases: BaseStores, chance: random.Random) -> str:
    path = random_file(root, chance)
    size = path.stat().st_size
    end = chance.randrange(size)
    os.truncate(path, end)
    return f"{path.relative_to(root)}: cut to {end} of {size} bytes"


def swap(root: Path, _bases: BaseStores, chance: random.Random) -> str | None:
    """Two ranges of one file change places."""
    path = random_file(root, chance)
    length = path.stat().st_size
    size = chance.randint(1, min(RANGE_BYTES_MAX, length // 2 or 1))
    first = chance.randrange(max(1, length - 2 * size))
    second = chance.randint(first + size, max(first + size, length - size))
    one, other = read_at(path, first, size), read_at(path, second, size)
    if len(one) != len(other) or one == other:
        return None
    write_at(path, first, other)
    write_at(path, second, one)
    return f"{path.relative_to(root)}: {size} bytes at {first} and {second} exchanged"


def foreign_file(root: Path, _bases: BaseStores, chance: random.Random) -> str | None:
    """The content of another file of the same folder."""
    path = random_file(root, chance)
    kin = [other for other in path.parent.parent.rglob("*") if other.is_file() and other != path]
    kin = [other for other in kin if other.name not in NOT_STORED]
    if path.parent == root or not kin:
        return None
    other = chance.choice(sorted(kin))
    if filecmp.cmp(other, path, shallow=False):
        return None
    copy_file(other, path)
    return f"{path.relative_to(root)}: content of {other.relative_to(root)}"


def old_copy(root: Path, bases: BaseStores, chance: random.Random) -> str | None:
    """The file as it was half-way."""
    path = random_file(root, chance)
    old = bases.earlier / path.relative_to(root)
    if not old.exists() or filecmp.cmp(old, path, shallow=False):
        return None
    copy_file(old, path)
    return f"{path.relative_to(root)}: as it was earlier"


def lose_file(root: Path, _bases: BaseStores, chance: random.Random) -> str:
    path = random_file(root, chance)
    path.unlink()
    return f"{path.relative_to(root)}: gone"


def lose_journal_entry(root: Path, bases: BaseStores, chance: random.Random) -> str | None:
    """One entry of a record of a journal becomes spaces; the checksum holds. Each journal is as
    likely as any other."""
    journals: dict[str, list[Place]] = {}
    for one in places(root, segment_bytes_of(bases)):
        if one.topic.startswith(JOURNAL_PREFIX):
            journals.setdefault(one.topic, []).append(one)
    found = journals[chance.choice(sorted(journals))] if journals else []
    if not found:
        return None
    one = chance.choice(found)
    body = one.read(BODY_AT, one.number(BODY_LENGTH_AT, ">i"))
    entries = json.loads(body)
    if not isinstance(entries, list) or not entries:
        return None
    gone = entries.pop(chance.randrange(len(entries)))
    write_body(one, json.dumps(entries, separators=(",", ":")).encode().ljust(len(body)))
    return f"{one.topic} record {one.queue_offset}: without {json.dumps(gone)}"


def segment_bytes_of(bases: BaseStores) -> int:
    size = bases.geometry["segment_bytes"]
    assert isinstance(size, int)
    return size


def write_body(one: Place, body: bytes) -> None:
    """Of the same length."""
    one.write(BODY_AT, body)
    one.write(BODY_CRC_AT, struct.pack(">I", crc32(body) & 0x7FFF_FFFF))


def lose_table_row(root: Path, _bases: BaseStores, chance: random.Random) -> str | None:
    paths = sorted((root / "config").glob("*.json"))
    if not paths:
        return None
    path = chance.choice(paths)
    document = parse_object(path.read_bytes())
    tables = [name for name, value in document.items() if value and isinstance(value, dict)]
    if not tables:
        return None
    name = chance.choice(sorted(tables, key=str))
    table: Any = document[name]
    row = sorted(table, key=str)[chance.randrange(len(table))]
    del table[row]
    path.write_bytes(render_json(document))
    return f"config/{path.name}: {name} without {row}"


CHANGES: dict[str, Change] = {
    "bit": flip_bit,
    "cut": cut,
    "swap": swap,
    "foreign file": foreign_file,
    "old copy": old_copy,
    "missing file": lose_file,
    "journal entry": lose_journal_entry,
    "table row": lose_table_row,
}


def damage(root: Path, bases: BaseStores, chance: random.Random) -> tuple[str, str]:
    """One damage of `root`: its kind, and what was done where."""
    while True:
        kind = chance.choice(sorted(CHANGES))
        done = CHANGES[kind](root, bases, chance)
        if done is not None:
            return kind, done
