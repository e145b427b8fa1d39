"""Pages ahead of the appends: brought in, bounded, locked if wanted, and never a byte changed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.log.segment_supply import STEP_BYTES, WarmUpWork
from aerobee.store.engine.message_store import MessageStore
from tests.support.fault_disk import FaultDisk, broken
from tests.support.stores import (
    SMALL,
    append,
    check_agreement,
    crashed_copy,
    flush,
    open_store,
    read_queue,
)

MIB = 1024 * 1024
AHEAD = 2 * STEP_BYTES
CONFIG = replace(
    SMALL, segment_bytes=3 * STEP_BYTES, warm_up_segments=True, warm_up_ahead_bytes=AHEAD
)


def warm_up(store: MessageStore) -> int:
    """Do all there is to do now; how many steps that was."""
    steps = 0
    while (work := store.supply.take_warm_up()) is not None:
        assert store.supply.take_warm_up() is None  # one at a time
        work.run()
        store.supply.finish_warm_up(work)
        steps += 1
    return steps


def prepare(store: MessageStore) -> None:
    work = store.supply.take_prepare()
    assert work is not None
    work.run()
    store.supply.finish_prepare(work)


def fill(store: MessageStore, size: int) -> None:
    """Append about so many bytes."""
    for _ in range(size // MIB):
        append(store, "Orders", 0, bytes(MIB))


def cached_pages(path: Path) -> set[int]:
    """Which pages of a file lie in the page cache, found without bringing any in."""
    found = set()
    buffer = bytearray(1)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for page in range(os.fstat(descriptor).st_size // 4096):
            try:
                os.preadv(descriptor, [buffer], page * 4096, os.RWF_NOWAIT)
                found.add(page)
            except BlockingIOError:
                pass
    finally:
        os.close(descriptor)
    return found


def test_pages_are_warm_a_bounded_way_ahead_of_the_log_and_follow_it(tmp_path: Path) -> None:
    store = open_store(tmp_path, CONFIG)
    assert warm_up(store) == 0  # no segment yet
    append(store, "Orders", 0, b"a")
    assert warm_up(store) == AHEAD // STEP_BYTES
    assert store.appended_end < store.supply.warm_end <= store.appended_end + AHEAD
    for _ in range(3):
        append(store, "Orders", 0, bytes(STEP_BYTES // 2))
        warm_up(store)
        assert store.appended_end + STEP_BYTES // 2 <= store.supply.warm_end
        assert store.supply.warm_end <= store.appended_end + AHEAD
    store.close()


def test_touched_pages_are_in_the_page_cache(tmp_path: Path) -> None:
    file = RealDisk(tmp_path).open_file("f", create=True)
    file.allocate(4 * MIB)
    file.datasync()
    file.touch_pages(MIB, 2 * MIB + 5)
    file.touch_pages(8 * MIB, 100)  # past the end: nothing to do
    assert file.size() == 4 * MIB
    assert set(range(256, 768)) <= cached_pages(tmp_path / "f")


def test_warming_up_changes_no_byte_whatever_is_appended_meanwhile(tmp_path: Path) -> None:
    store = open_store(tmp_path, CONFIG)
    bodies = [b"first"]
    append(store, "Orders", 0, bodies[0])
    for number in range(12):
        taken = store.supply.take_warm_up()
        bodies.append(bytes([number + 1]) * MIB)
        append(store, "Orders", 0, bodies[-1])  # into pages that are about to be touched
        if taken is not None:
            taken.run()
            store.supply.finish_warm_up(taken)
        prepared = store.supply.take_prepare()
        if prepared is not None:
            store.supply.finish_prepare(prepared)  # this time nothing comes of it
    flush(store)
    assert read_queue(store, "Orders", 0) == bodies
    again = open_store(crashed_copy(tmp_path, tmp_path.parent / "copy"), CONFIG)
    assert read_queue(again, "Orders", 0) == bodies
    check_agreement(again)


def test_the_next_segment_is_warm_before_the_log_reaches_it(tmp_path: Path) -> None:
    store = open_store(tmp_path, CONFIG)
    fill(store, 2 * STEP_BYTES)
    warm_up(store)
    segment_end = CONFIG.segment_bytes
    assert store.supply.warm_end == segment_end  # no file for more
    prepare(store)
    warm_up(store)
    assert store.supply.warm_end > segment_end
    warm_end = store.supply.warm_end
    fill(store, 2 * STEP_BYTES)  # rolls
    assert store.log.segments()[-1].base == segment_end
    assert store.supply.warm_end == warm_end
    assert warm_up(store) > 0
    assert store.appended_end < store.supply.warm_end <= store.appended_end + AHEAD


def test_appends_that_overtake_the_warm_up_are_not_followed(tmp_path: Path) -> None:
    store = open_store(tmp_path, CONFIG)
    append(store, "Orders", 0, b"a")
    work = store.supply.take_warm_up()
    assert work is not None
    fill(store, STEP_BYTES + MIB)
    work.run()
    store.supply.finish_warm_up(work)
    following = store.supply.take_warm_up()
    assert following is not None
    assert following.end > store.appended_end


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    store = open_store(disk, replace(CONFIG, warm_up_segments=False))
    assert SMALL.warm_up_segments is False  # the default
    append(store, "Orders", 0, b"a")
    assert warm_up(store) == 0
    assert not [call for call in disk.calls if call[0] in {"touch", "lock"}]


# ---------------------------------------------------------------------------------- locking


def test_a_refused_lock_is_told_and_the_pages_are_touched_instead(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    store = open_store(disk, replace(CONFIG, lock_segments_in_memory=True))
    append(store, "Orders", 0, b"a")
    disk.lock_error = OSError(12, "Cannot allocate memory")
    work = store.supply.take_warm_up()
    assert work is not None
    work.run()
    assert work.lock_error is disk.lock_error
    store.supply.finish_warm_up(work)
    fill(store, STEP_BYTES)
    warm_up(store)
    kinds = [kind for kind, _ in disk.calls if kind in {"touch", "lock"}]
    assert kinds[:2] == ["lock", "touch"]
    assert set(kinds[2:]) == {"touch"}  # not asked for again


def test_a_disk_that_fails_while_locking_is_not_taken_for_a_refusal(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    file = disk.open_file("f", create=True)
    disk.lock_error = broken()
    with pytest.raises(OSError, match="Input/output error"):
        WarmUpWork(file, 0, 4096, end=4096, lock=True).run()


LOCKING = """
import os, resource, sys
from aerobee.store.engine.disk import RealDisk

def locked_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmLck"))

file = RealDisk(sys.argv[1]).open_file("f")
file.lock_in_memory(100, 65536)
assert 64 <= locked_kib() <= 72, locked_kib()
if os.getuid() == 0:
    os.setresuid(65534, 65534, 65534)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (131072, 131072))
try:
    file.lock_in_memory(0, 1 << 20)
except OSError as error:
    print("refused", error.errno)
file.close()
assert locked_kib() == 0, locked_kib()
"""


def test_locked_pages_obey_the_limit_of_the_process_and_go_with_the_handle(tmp_path: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] < 131_072:
        pytest.skip("this process may lock nothing")
    RealDisk(tmp_path).open_file("f", create=True).allocate(2 * MIB)
    result = subprocess.run(
        [sys.executable, "-c", LOCKING, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() in (["refused", "12"], ["refused", "11"], ["refused", "1"])
