"""Stores that Apache's broker wrote: nothing above INFO but what is true, and damages are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from tests.golden_stores.conftest import NAMES
from tests.offset_audit.damages.damage import wanted
from tests.offset_audit.damages.stores_at_rest import Audited

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.timeout(400)]


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


@pytest.mark.parametrize("name", [name for name in NAMES if name != "retained"])
def test_a_store_of_apache_has_nothing_above_info(audited: Audited, name: str) -> None:
    assert audited.told_of(name) == Counter()


def test_messages_that_retention_took_from_a_group_are_told_and_nothing_else(
    audited: Audited,
) -> None:
    lost = lost_unread(audited.manifests["retained"], "kept-partial")
    assert lost == 57
    found = [one for one in audited.told_of("retained").elements() if one[1] == "OUT_OF_RANGE_LOW"]
    assert audited.told_of("retained").total() == 1
    name, _, severity, topic, _, group, affected = found[0]
    assert (name, severity, topic) == ("retained", "CRITICAL", "PaymentNotices")
    assert (group, affected) == ("kept-partial", lost)


@pytest.mark.parametrize("name", ["body-bit-of-apache", "cut-queue"])
def test_a_damage_to_a_store_of_apache_is_found(audited: Audited, name: str) -> None:
    assert audited.told_of(name) == Counter([wanted(name, audited.damaged[name])])
