"""Store folders and damage to their files: made, damaged, verified, repaired."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.folder_state import lock_store
from aerobee.store.repair.planner import RepairPlan, RepairWishes, plan_repair
from aerobee.store.repair.repair import Repair, archive_name
from aerobee.store.repair.verify import Verified, verify_store
from tests.support.stores import SMALL, batch_of, flush, open_store

QUEUES = [("orders", 0), ("orders", 1), ("payments", 0)]
MESSAGES = 120
CONFIG = replace(SMALL, index_slots_max=20, index_entries_max=100)


def body_of(number: int) -> bytes:
    return f"message {number} ".encode() * (1 + number % 9)


def make_store(root: Path, messages: int = MESSAGES, *, close: bool = True) -> None:
    """Several segments, queue files and index files; message n is in queue n % 3 at n // 3."""
    clock = ManualClock()
    store = open_store(root, CONFIG, clock)
    for number in range(messages):
        topic, queue_id = QUEUES[number % 3]
        properties = {"UNIQ_KEY": f"id-{number}", "KEYS": f"key-{number} all"}
        batch = batch_of(topic, body_of(number), tag=f"tag-{number % 4}", properties=properties)
        store.append(batch, queue_id=queue_id)
        store.confirm(store.appended_end)
        clock.advance_ms(500)
        if number % 20 == 19:
            flush(store)
    if close:
        store.close()


def verify(root: Path, config: StoreConfig = CONFIG) -> Verified:
    return verify_store(RealDisk(root), config)


def codes(verified: Verified) -> set[str]:
    """The codes of all findings."""
    return {kind.name for kind in verified.findings.counts}


def repair(
    root: Path, wishes: RepairWishes | None = None, config: StoreConfig = CONFIG
) -> RepairPlan:
    """Plan and apply, as the command does."""
    disk = RealDisk(root)
    clock = ManualClock()
    lock = lock_store(disk)
    try:
        verified = verify_store(disk, config, is_locked_by_us=True)
        plan = plan_repair(verified, wishes or RepairWishes(), archive_name(disk, clock))
        work = Repair(disk, plan, clock)
        if plan.steps:
            work.apply()
    finally:
        lock.release()
    if plan.steps:
        work.open_once(config)
    return plan


def files_of(root: Path) -> dict[str, bytes]:
    """Each file's content, except the lock and what repairs leave."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not path.relative_to(root).parts[0].startswith("repair-")
        and path.name != "lock"
    }


# ---------------------------------------------------------------------------------- damage


def flip_bit(file: Path, at: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


def overwrite(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


def shorten(file: Path, size: int) -> None:
    os.truncate(file, size)


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def segment(root: Path, number: int) -> Path:
    return segments(root)[number]


def queue_file(root: Path, topic: str, queue_id: int, number: int = 0) -> Path:
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())[number]


def index_file(root: Path, number: int = 0) -> Path:
    return sorted((root / "index").iterdir())[number]


def copy_of(root: Path, target: Path) -> Path:
    shutil.copytree(root, target)
    return target
