"""The timer's files that Apache's broker left: each damage is told, with its file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aerobee.offset_audit.sources.store.faults_timers import timer_faults
from aerobee.offset_audit.sources.store.folders import Origin, StoreFolder
from aerobee.offset_audit.sources.store.ranges_facts import store_facts
from aerobee.store.format.timer_log import COMMIT_OFFSET_AT, TIMER_RECORD_SIZE
from aerobee.store.format.timer_wheel import SLOT_DTYPE
from tests.golden_stores.conftest import GoldenStore

np = pytest.importorskip("numpy")

FIRST, SECOND, LAST = (f"timerlog/{base:020}" for base in (0, 1_024, 2_048))
LAST_WAITING = 2
TOO_FAR = "config/timercheck: it says that the timer log was written up to byte "


def faults(root: Path) -> list[str]:
    facts = store_facts(StoreFolder(str(root), Origin()))
    return [f"{one.file}: {one.detail}" for one in timer_faults(facts)]


@pytest.mark.parametrize("name", ["clean-small", "crashed", "crashed-torn", "ipv6-v2", "retained"])
def test_what_a_broker_left_has_no_fault(tmp_path: Path, name: str) -> None:
    assert faults(GoldenStore(name, tmp_path).root) == []


def lose_file(root: Path) -> None:
    (root / FIRST).unlink()


def lose_middle(root: Path) -> None:
    (root / SECOND).unlink()


def foreign_content(root: Path) -> None:
    (root / LAST).write_bytes(b"not a timer log" * 20)


def lose_all(root: Path) -> None:
    shutil.rmtree(root / "timerlog")


def other_checkpoint(root: Path) -> None:
    """Its first number is a time, too."""
    shutil.copyfile(root / "checkpoint", root / "config" / "timercheck")


def other_message(root: Path) -> None:
    data = bytearray((root / LAST).read_bytes())
    at = LAST_WAITING * TIMER_RECORD_SIZE + COMMIT_OFFSET_AT
    data[at : at + 8] = (1).to_bytes(8, "big")
    (root / LAST).write_bytes(data)


def other_previous(root: Path) -> None:
    data = bytearray((root / LAST).read_bytes())
    at = LAST_WAITING * TIMER_RECORD_SIZE + 4
    data[at : at + 8] = (12).to_bytes(8, "big")
    (root / LAST).write_bytes(data)


def empty_slots(root: Path) -> None:
    path = root / "timerwheel"
    path.write_bytes(np.zeros(path.stat().st_size // SLOT_DTYPE.itemsize, SLOT_DTYPE).tobytes())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lose_file, "timerwheel: "),
        (lose_middle, f"{FIRST}: {LAST.rpartition('/')[2]} does not follow it"),
        (foreign_content, f"{LAST}: after 0 records it has bytes that are none"),
        (lose_all, f"{TOO_FAR}2308, but timerlog has no file"),
        (other_checkpoint, TOO_FAR),
        (other_message, f"{LAST}: a record names no timer at byte 1 of the log"),
        (other_previous, f"{LAST}: a record follows 12 in its slot, not "),
        (empty_slots, "timerwheel: "),
    ],
)
def test_a_damage_is_told(tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    root = GoldenStore("clean-small", tmp_path).root
    damage(root)
    assert any(one.startswith(said) for one in faults(root)), faults(root)
