"""The epoch file in a store's folder: whole or the one before, whatever happens."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.tables.atomic_file import Source
from aerobee.store.engine.tables.epoch_table import load_epochs, remove_epochs, save_epochs
from aerobee.store.format.epoch_file import EPOCH_FILE
from aerobee.testing.power_failure import draw_fate
from aerobee.testing.simulated_disk import SimulatedDisk
from aerobee.testing.simulated_power import PowerCut

FIRST = [(1, 0)]
SECOND = [(1, 0), (4, 4096)]


def test_a_folder_without_epochs_has_none(tmp_path: Path) -> None:
    assert load_epochs(RealDisk(tmp_path)).value is None


def test_what_was_saved_last_is_loaded(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    save_epochs(disk, FIRST)
    save_epochs(disk, SECOND)
    loaded = load_epochs(disk)
    assert (loaded.value, loaded.source, loaded.problem) == (SECOND, Source.FILE, None)
    remove_epochs(disk)
    assert load_epochs(disk).value is None
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_told_and_its_backup_used(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    save_epochs(disk, FIRST)
    save_epochs(disk, SECOND)
    path = tmp_path / EPOCH_FILE
    path.write_bytes(path.read_bytes().replace(b"4-", b"3-"))
    loaded = load_epochs(disk)
    assert loaded.value == FIRST
    assert loaded.problem is not None
    assert "checksum" in loaded.problem
    (tmp_path / f"{EPOCH_FILE}.bak").write_bytes(b"nothing\n")
    with pytest.raises(StoreUnusable):
        load_epochs(disk)


def test_a_power_cut_leaves_the_epochs_before_or_the_new_ones() -> None:
    seen = set()
    for ends_at in range(100):
        disk = SimulatedDisk()
        save_epochs(disk, FIRST)
        disk.power_ends_at = disk.steps + ends_at
        try:
            save_epochs(disk, SECOND)
        except PowerCut:
            for seed in range(20):
                found = load_epochs(_after_power_cut(disk, seed)).value
                assert found in (FIRST, SECOND)
                seen.add(len(found))
        else:
            break
    else:
        pytest.fail("saving takes more than 100 steps")
    assert seen == {1, 2}
    assert load_epochs(_after_power_cut(disk, 0)).value == SECOND


def _after_power_cut(disk: SimulatedDisk, seed: int) -> SimulatedDisk:
    promised, end = disk.sequence_range
    fate = draw_fate(random.Random(seed), promised=promised, end=end, has_journal=seed % 2 == 0)
    return disk.after_power_failure(fate)
