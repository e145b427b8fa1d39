"""Stores that Apache's broker wrote: nothing above INFO but what is true, and damages are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE
from aerobee.store_format.record_layout import BODY_AT
from tests.golden_stores.conftest import NAMES, GoldenStore
from tests.offset_audit.damages.auditing import audit
from tests.offset_audit.damages.damage import Expected, told, wanted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

KEPT = 5
"""So many entries are left of the queue file that is cut."""


class Audited:
    """One audit of all of them, and of two that were damaged."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        stores = folder / "stores"
        self.manifests = {name: GoldenStore(name, stores).manifest for name in NAMES}
        apart = folder / "apart"
        apart.mkdir()
        body_bit = damaged("clean-small", folder, apart / "store")
        cut_queue = damaged("ipv6-v2", folder, stores / "cut-queue")
        self.expected = {
            "body-bit": flip_bit_in_body(body_bit, self.manifests["clean-small"]),
            "cut-queue": cut_queue_file(cut_queue, self.manifests["ipv6-v2"]),
        }
        places = (StorePlace(str(stores)), StorePlace(str(body_bit), "body-bit", 0))
        request = AuditRequest(stores=places, is_deep=True)
        self.summary: Summary = audit(spark, request)

    def of(self, name: str) -> Counter[tuple[Any, ...]]:
        return told(one for one in self.summary.findings if one["broker_name"] == name)


def damaged(name: str, folder: Path, target: Path) -> Path:
    return GoldenStore(name, folder).root.rename(target)


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


def lost_unread(manifest: Mapping[str, Any], group: str) -> int:
    """By the manifest: messages that the log no longer has and the group has not consumed."""
    lost = 0
    for key, queues in manifest["consumerOffsets"].items():
        topic, _, of_group = key.partition("@")
        for queue_id, offset in queues.items():
            queue = manifest["topics"].get(topic, {}).get(queue_id)
            if of_group == group and queue is not None:
                lost += max(0, queue["minOffset"] - offset)
    return lost


@pytest.fixture(scope="module")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    return Audited(spark, tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "retained"])
def test_a_store_of_apache_has_nothing_above_info(audited: Audited, name: str) -> None:
    assert audited.of(name) == Counter()


def test_messages_that_retention_took_from_a_group_are_told_and_nothing_else(
    audited: Audited,
) -> None:
    lost = lost_unread(audited.manifests["retained"], "kept-partial")
    assert lost == 57
    found = [one for one in audited.of("retained").elements() if one[1] == "OUT_OF_RANGE_LOW"]
    assert audited.of("retained").total() == 1
    name, _, severity, topic, _, group, affected = found[0]
    assert (name, severity, topic) == ("retained", "CRITICAL", "PaymentNotices")
    assert (group, affected) == ("kept-partial", lost)


@pytest.mark.parametrize("name", ["body-bit", "cut-queue"])
def test_a_damage_to_a_store_of_apache_is_found(audited: Audited, name: str) -> None:
    assert audited.of(name) == Counter([wanted(name, audited.expected[name])])


def test_nothing_else_was_found(audited: Audited) -> None:
    others = [
        one
        for one in audited.summary.findings
        if one["severity"] != "INFO" and one["broker_name"] not in (*audited.expected, "retained")
    ]
    assert others == []
