"""Damages to stores at rest, all in one audit: exactly these findings, and no others."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import CLEAN_STORE
from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from aerobee.v1 import broker_pb2
from tests.offset_audit.damages.auditing import audit
from tests.offset_audit.damages.base_store import (
    GEOMETRY,
    TOPICS,
    BaseStores,
    build_stores,
    copy_store,
)
from tests.offset_audit.damages.damage import Expected, StoreDamage, told, wanted
from tests.offset_audit.damages.history_damages import HISTORY
from tests.offset_audit.damages.store_damages import (
    SINGLE_STORE,
    flip_bit_in_tags_code,
    flip_headers,
    keys_of_first_slot,
    messages_of_segment,
    newest_store_ms,
    places,
)
from tests.offset_audit.damages.waiting_damages import (
    OVERDUE_MS,
    WAITING,
    differ_in_data,
    differ_in_epochs,
)
from tests.support.real_brokers import BrokerProcess
from tests.support.retention import RESERVED_MS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HEALTHY = "healthy"
FLIPPED = "flipped-headers"
RETAINED = "retained-meanwhile"
OLD_SEGMENTS = 3
LATE_OFFSET = 395
"""In the last segment, so that the block is read again and what is wrong there stays."""
SINGLE = (*SINGLE_STORE, *WAITING, *HISTORY)
PAIRS = {
    "two-contents": Expected("REPLICA_DATA", "CRITICAL", affected=1, says="CRC-32"),
    "two-histories": Expected("REPLICA_EPOCH", "ERROR", affected=1, says="310000"),
    "stale-replica": Expected("REPLICA_PROGRESS", "WARNING", says="older"),
}
"""Two replicas of one group each."""
LIMITS = {"replica_lag_bytes": 100_000, "overdue_ms": OVERDUE_MS}


@dataclass(frozen=True, slots=True)
class Audited:
    bases: BaseStores
    summary: Summary

    def of(self, name: str) -> list[dict[str, object]]:
        """Findings above INFO of one damage."""
        return [
            dict(one)
            for one in self.summary.findings
            if one["broker_name"] == name and one["severity"] != "INFO"
        ]


@pytest.fixture(scope="module")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    bases = asyncio.run(build_stores(tmp_path_factory.mktemp("base")))
    folder = tmp_path_factory.mktemp("damaged")
    damage_copies(bases, folder)
    request = AuditRequest(stores=(StorePlace(str(folder)),), is_deep=True, limits=LIMITS)
    return Audited(bases, asyncio.run(audit_with_retention(spark, request, folder / RETAINED)))


async def audit_with_retention(spark: SparkSession, request: AuditRequest, root: Path) -> Summary:
    """Of one of the stores a broker runs meanwhile, and removes segments once all were read and
    before those blocks are read again that differ."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        broker = await BrokerProcess(RETAINED, root, TOPICS, GEOMETRY).start()
        stack.push_async_callback(broker.stop)
        channels = Channels()
        stack.push_async_callback(channels.close)

        async def clean() -> int:
            for path in sorted((root / "commitlog").iterdir())[:OLD_SEGMENTS]:
                old_s = time.time() - RESERVED_MS / 1_000 - 1
                os.utime(path, (old_s, old_s))
            request = broker_pb2.CleanStoreRequest(unread=True)
            return (await channels.call(broker.address, CLEAN_STORE, request)).removed_segments

        def retention() -> None:
            removed = asyncio.run_coroutine_threadsafe(clean(), loop).result(60)
            assert removed == OLD_SEGMENTS

        return await asyncio.to_thread(audit, spark, request, {"judge": retention})


def damage_copies(bases: BaseStores, folder: Path) -> None:
    flip_headers(copy_store(bases.final, folder / FLIPPED, FLIPPED))
    flip_bit_in_tags_code(copy_store(bases.final, folder / RETAINED, RETAINED), LATE_OFFSET)
    copy_store(bases.final, folder / HEALTHY, HEALTHY)
    for damage in SINGLE:
        damage.do(copy_store(bases.final, folder / damage.name, damage.name))
    for name, other in (("two-contents", differ_in_data), ("two-histories", differ_in_epochs)):
        roots = [copy_store(bases.final, folder / f"{name}-{n}", name, n) for n in (0, 1)]
        other(roots[0], roots[1])
    copy_store(bases.final, folder / "stale-0", "stale-replica", 0)
    copy_store(bases.earlier, folder / "stale-1", "stale-replica", 1)
    # Messages of the future would be another damage.
    newest_ms = max(newest_store_ms(folder / damage.name) for damage in WAITING)
    time.sleep(max(0, newest_ms - time.time() * 1_000) / 1_000)


def expected_of(damage: StoreDamage, bases: BaseStores) -> Expected:
    """What depends on where messages and keys came to lie is counted in the undamaged store."""
    if damage.name == "index-slot-bit":
        return replace(damage.expected, affected=keys_of_first_slot(bases.final))
    if damage.name == "missing-segment":
        return replace(damage.expected, affected=messages_of_segment(bases.final, 2))
    return damage.expected


@pytest.mark.parametrize("damage", SINGLE, ids=lambda damage: damage.name)
def test_a_damage_gives_its_finding_and_no_other(audited: Audited, damage: StoreDamage) -> None:
    expected = expected_of(damage, audited.bases)
    found = audited.of(damage.name)
    assert told(found) == Counter([wanted(damage.name, expected)]), found
    assert expected.says in str(found[0]["evidence"])
    assert found[0]["command"]


@pytest.mark.parametrize("name", PAIRS)
def test_replicas_that_drifted_apart_give_one_finding(audited: Audited, name: str) -> None:
    found = audited.of(name)
    expected = PAIRS[name]
    if name == "stale-replica":
        final, earlier = audited.bases.final, audited.bases.earlier
        expected = replace(expected, affected=len([*places(final)]) - len([*places(earlier)]))
    assert told(found) == Counter([wanted(name, expected)]), found
    assert PAIRS[name].says in str(found[0]["evidence"])
    assert found[0]["broker_id"] == 1


def test_the_undamaged_copy_has_none(audited: Audited) -> None:
    assert audited.of(HEALTHY) == []


def test_flipped_header_bits_are_told_as_what_they_are_and_end_no_audit(audited: Audited) -> None:
    """Fields that nothing repeats cannot be seen; `test_flipped_headers.py` names them."""
    found = audited.of(FLIPPED)
    kinds: Counter[str] = Counter()
    for one in found:
        name = str(one["evidence"]).partition(":")[0] if one["check"] == "CORRUPT" else ""
        kinds[f"{one['check']} {name}".strip()] += int(str(one["affected"]))
    assert kinds == {
        "CORRUPT BAD_LENGTHS": 2,
        "CORRUPT BAD_MAGIC": 1,
        "CORRUPT MISPLACED": 1,
        "CORRUPT BAD_CRC": 1,
        "CORRUPT BAD_TIME": 3,
        "CORRUPT HEADER": 3,
        # A queue id that became that of another queue, where the offset is taken.
        "DUPLICATE": 1,
        "GAP": 1,
    }, found


def test_retention_while_a_running_broker_is_audited_loses_nothing(audited: Audited) -> None:
    expected = Expected("CORRUPT", "ERROR", "orders", 0, None, 1)
    found = audited.of(RETAINED)
    assert told(found) == Counter([wanted(RETAINED, expected)]), found


def test_there_are_no_findings_of_anything_else(audited: Audited) -> None:
    names = {damage.name for damage in SINGLE} | set(PAIRS) | {FLIPPED, RETAINED}
    others = [
        one
        for one in audited.summary.findings
        if one["severity"] != "INFO" and one["broker_name"] not in names
    ]
    assert others == []
    assert audited.summary.exit_code == 3
