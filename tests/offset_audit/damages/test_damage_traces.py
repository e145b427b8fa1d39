"""What each damage leaves in the rows of readers, and in no others. Without Spark."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.offset_audit.damages.base_store import BaseStores, build_stores, copy_store
from tests.offset_audit.damages.failed_damages import FAILED
from tests.offset_audit.damages.history_damages import HISTORY
from tests.offset_audit.damages.store_damages import SINGLE_STORE
from tests.offset_audit.damages.waiting_damages import WAITING
from tests.offset_audit.store_rows import store_rows

pytestmark = pytest.mark.slow

ALL_QUEUES = {
    ("AEROBEE_OFFSET_JOURNAL", 0),
    *(("orders", queue_id) for queue_id in range(4)),
    *(("payments", queue_id) for queue_id in range(2)),
}
NOTHING: tuple[list[str], set[tuple[str, int]], bool] = ([], set(), False)

# Kinds of faults, queues of which log and files differ, and whether the index lacks keys.
TRACES: dict[str, tuple[list[str], set[tuple[str, int]], bool]] = {
    "healthy": NOTHING,
    "body-bit": (["BAD_CRC"], set(), False),
    "size-bit": (["BAD_LENGTHS"], {("payments", 0)}, True),
    "missing-segment": (["MISSING_SEGMENT"], ALL_QUEUES, True),
    "first-segment-missing": (["LOST_BEGIN"], set(), False),
    "duplicate-offset": ([], {("orders", 2)}, False),
    "clock-jump": (["TIME_BACKWARD"], set(), False),
    "tags-code-bit": ([], {("orders", 0)}, False),
    "entry-to-nothing": ([], {("payments", 1)}, False),
    "cut-queue-file": (["QUEUE_FILE_SIZE"], {("orders", 0)}, False),
    "missing-queue-file": (["MISSING_FILE"], {("payments", 0)}, False),
    "index-slot-bit": (["INDEX_SLOT"], set(), True),
    "rewound-commit": NOTHING,
    "skipped-commits": NOTHING,
    "offset-beyond-end": NOTHING,
    "torn-config": (["BAD_CONFIG"], set(), False),
    "topic-with-fewer-queues": NOTHING,
    "offsets-forgotten": (["CHANGED_TABLE"], set(), False),
    "groups-lost": (["LOST_ROW"], set(), False),
    "topic-forgotten": (["LOST_ROW"], set(), False),
    "journal-record-emptied": (["BAD_JOURNAL"], set(), False),
    "half-never-resolved": NOTHING,
    "transaction-set-aside": NOTHING,
    "delay-overdue": NOTHING,
    "timer-overdue": NOTHING,
    "delay-given-up": NOTHING,
    "lost-messages": ([], {("orders", 0)}, False),
    "reset-back": NOTHING,
    "delivered-too-early": NOTHING,
    **{damage.name: NOTHING for damage in FAILED},
}
# Kinds of messages that wait: both copies of one that came into its retry twice, too.
WAITING_KINDS = {
    "half-never-resolved": ["HALF"],
    "transaction-set-aside": ["ASIDE"],
    "delay-overdue": ["DELAY"],
    "timer-overdue": ["TIMER"],
    "retry-copied-twice": ["DELAY", "DELAY"],
}
DAMAGES = {damage.name: damage for damage in (*SINGLE_STORE, *WAITING, *HISTORY, *FAILED)}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> BaseStores:
    return asyncio.run(build_stores(tmp_path_factory.mktemp("base")))


def differing(root: Path, kind: str, by: tuple[str, ...], count: str) -> set[tuple[Any, ...]]:
    """Places of which the log and the files derived from it have not the same."""
    sums: dict[tuple[Any, ...], dict[bool, list[Any]]] = defaultdict(
        lambda: {True: [0, Decimal(0)], False: [0, Decimal(0)]}
    )
    for row in store_rows(kind, root):
        side = sums[tuple(row[name] for name in by)][row["source"] == "LOG"]
        side[0] += row[count]
        side[1] += row["digest"]
    return {place for place, sides in sums.items() if sides[True] != sides[False]}


def test_every_damage_has_its_traces() -> None:
    assert set(TRACES) == {"healthy", *DAMAGES}


@pytest.mark.thorough
@pytest.mark.parametrize("name", TRACES)
def test_a_damage_leaves_its_traces_and_no_others(
    bases: BaseStores, tmp_path: Path, name: str
) -> None:
    root = copy_store(bases.final, tmp_path / name, name)
    if name in DAMAGES:
        DAMAGES[name].do(root)
    faults, queues, lacks_keys = TRACES[name]
    found = store_rows("faults", root, checkBodies="true")
    assert [row["kind"] for row in found] == faults
    assert differing(root, "queue_ranges", ("topic", "queue_id"), "messages") == queues
    assert bool(differing(root, "index_ranges", ("block",), "keys")) == lacks_keys
    waiting = [row["kind"] for row in store_rows("pending", root) if not row["resolved"]]
    assert waiting == WAITING_KINDS.get(name, [])
