"""Stores at rest, sound and damaged, ours and Apache's, and one deep audit of all of them."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import CLEAN_STORE
from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.engine import RunEngine
from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE
from aerobee.store.format.record_layout import BODY_AT
from aerobee.v1 import broker_pb2
from tests.golden_stores.conftest import NAMES, GoldenStore
from tests.offset_audit.damages.auditing import audit
from tests.offset_audit.damages.base_store import (
    GEOMETRY,
    TOPICS,
    BaseStores,
    build_stores,
    copy_store,
)
from tests.offset_audit.damages.damage import Expected, told
from tests.offset_audit.damages.failed_damages import FAILED, fail_and_come_again
from tests.offset_audit.damages.history_damages import HISTORY
from tests.offset_audit.damages.store_damages import (
    SINGLE_STORE,
    flip_bit_in_tags_code,
    flip_headers,
)
from tests.offset_audit.damages.waiting_damages import (
    WAITING,
    differ_in_data,
    differ_in_epochs,
)
from tests.support.real_brokers import BrokerProcess
from tests.support.retention import RESERVED_MS

HEALTHY = "healthy"
COME_AGAIN = "failed-and-come-again"
FLIPPED = "flipped-headers"
RETAINED = "retained-meanwhile"
OLD_SEGMENTS = 3
LATE_OFFSET = 395
"""In the last segment, so that the block is read again and what is wrong there stays."""
SINGLE = (*SINGLE_STORE, *WAITING, *HISTORY, *FAILED)
LIMITS = {"replica_lag_bytes": 100_000}
KEPT = 5
"""So many entries are left of the queue file of Apache's that is cut."""


@dataclass(frozen=True, slots=True)
class Audited:
    """What the audit found, and what the damages were done to."""

    bases: BaseStores
    request: AuditRequest
    manifests: Mapping[str, Mapping[str, Any]]
    """Of Apache's stores."""
    damaged: Mapping[str, Expected]
    """What must be found of those that were damaged here."""
    summary: Summary

    def of(self, name: str) -> list[dict[str, object]]:
        """Findings above INFO of one store."""
        return [
            dict(one)
            for one in self.summary.findings
            if one["broker_name"] == name and one["severity"] != "INFO"
        ]

    def told_of(self, name: str) -> Counter[tuple[Any, ...]]:
        return told(self.of(name))


def audited_stores(engine: RunEngine, folder: Path) -> Audited:
    """One audit: of what it costs, little depends on how many stores there are."""
    ours, golden, apart = folder / "ours", folder / "golden", folder / "apart"
    (folder / "base").mkdir()
    apart.mkdir()
    bases = asyncio.run(build_stores(folder / "base"))
    damage_copies(bases, ours)
    manifests = {name: GoldenStore(name, golden).manifest for name in NAMES}
    body_bit = GoldenStore("clean-small", folder).root.rename(apart / "store")
    cut_queue = GoldenStore("ipv6-v2", folder).root.rename(golden / "cut-queue")
    damaged = {
        "body-bit-of-apache": flip_bit_in_body(body_bit, manifests["clean-small"]),
        "cut-queue": cut_queue_file(cut_queue, manifests["ipv6-v2"]),
    }
    request = AuditRequest(
        stores=(
            StorePlace(str(ours)),
            StorePlace(str(golden)),
            StorePlace(str(body_bit), "body-bit-of-apache", 0),
        ),
        is_deep=True,
        limits=LIMITS,
    )
    summary = asyncio.run(audit_with_retention(engine, request, ours / RETAINED))
    return Audited(bases, request, manifests, damaged, summary)


async def audit_with_retention(engine: RunEngine, request: AuditRequest, root: Path) -> Summary:
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

        return await asyncio.to_thread(audit, engine, request, {"judge": retention})


def damage_copies(bases: BaseStores, folder: Path) -> None:
    flip_headers(copy_store(bases.final, folder / FLIPPED, FLIPPED))
    flip_bit_in_tags_code(copy_store(bases.final, folder / RETAINED, RETAINED), LATE_OFFSET)
    copy_store(bases.final, folder / HEALTHY, HEALTHY)
    fail_and_come_again(copy_store(bases.final, folder / COME_AGAIN, COME_AGAIN))
    for damage in SINGLE:
        damage.do(copy_store(bases.final, folder / damage.name, damage.name))
    for name, other in (("two-contents", differ_in_data), ("two-histories", differ_in_epochs)):
        roots = [copy_store(bases.final, folder / f"{name}-{n}", name, n) for n in (0, 1)]
        other(roots[0], roots[1])
    copy_store(bases.final, folder / "stale-0", "stale-replica", 0)
    copy_store(bases.earlier, folder / "stale-1", "stale-replica", 1)


def flip_bit_in_body(root: Path, manifest: Mapping[str, Any]) -> Expected:
    message = manifest["topics"]["OrderEvents"]["0"]["messages"][7]
    position = message["physicalOffset"]
    size = int(manifest["config"]["mappedFileSizeCommitLog"])
    path = root / "commitlog" / f"{position // size * size:020d}"
    data = bytearray(path.read_bytes())
    data[position % size + BODY_AT + 3] ^= 4
    path.write_bytes(data)
    return Expected("CORRUPT", "CRITICAL", "OrderEvents", 0, None, 1)


def cut_queue_file(root: Path, manifest: Mapping[str, Any]) -> Expected:
    """The queue's last file has its first entries only."""
    queue = manifest["topics"]["AuditTrail"]["3"]
    path = sorted((root / "consumequeue" / "AuditTrail" / "3").iterdir())[-1]
    first = int(path.name) // ENTRY_SIZE
    path.write_bytes(path.read_bytes()[: KEPT * ENTRY_SIZE])
    lost = queue["maxOffset"] - max(first + KEPT, queue["minOffset"])
    return Expected("MISSING_ENTRY", "ERROR", "AuditTrail", 3, None, lost)
