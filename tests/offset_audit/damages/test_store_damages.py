"""Damages to stores at rest, all in one audit: exactly these findings, and no others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.offset_audit.damages.base_store import BaseStores
from tests.offset_audit.damages.damage import Expected, StoreDamage, told, wanted
from tests.offset_audit.damages.store_damages import (
    keys_of_first_slot,
    messages_of_segment,
    places,
)
from tests.offset_audit.damages.stores_at_rest import (
    COME_AGAIN,
    FLIPPED,
    HEALTHY,
    RETAINED,
    SINGLE,
    Audited,
)

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.timeout(400)]

PAIRS = {
    "two-contents": Expected("REPLICA_DATA", "CRITICAL", affected=1, says="CRC-32"),
    "two-histories": Expected("REPLICA_EPOCH", "ERROR", affected=1, says="310000"),
    "stale-replica": Expected("REPLICA_PROGRESS", "WARNING", says="older"),
}
"""Two replicas of one group each."""


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


@pytest.mark.parametrize("name", [HEALTHY, COME_AGAIN])
def test_the_undamaged_copy_has_none(audited: Audited, name: str) -> None:
    assert audited.of(name) == []


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
    names |= {*audited.damaged, "retained"}  # of Apache's stores
    others = [
        one
        for one in audited.summary.findings
        if one["severity"] != "INFO" and one["broker_name"] not in names
    ]
    assert others == []
    assert audited.summary.exit_code == 3


def test_failed_messages_are_counted_where_they_are(audited: Audited) -> None:
    """Of all stores together: what `failed_damages` did, and nothing else, was of this group."""
    found = next(one for one in audited.summary.failed if one["group"] == "billing")
    assert (found["waiting"], found["again"], found["dead"]) == (3, 7, 4), found
