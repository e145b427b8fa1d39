"""Random damages of a store: the audit finds each, or a broker serves what it served before."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from aerobee.offset_audit.run.kept import Kept
from aerobee.offset_audit.run.local_run import LocalRun
from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from tests.offset_audit.damages.auditing import audit
from tests.offset_audit.damages.base_store import BaseStores
from tests.offset_audit.damages.campaign import FOUND, MISSED, UNPLACED, all_stores, campaign
from tests.offset_audit.damages.random_damages import CHANGES, damage
from tests.support.sparse_copy import copy_folder

pytestmark = pytest.mark.slow

SEED = 36
DAMAGES = 8
"""Each takes seconds; `make audit-damages` makes as many as one likes."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[BaseStores]:
    return all_stores(tmp_path_factory.mktemp("stores"))


def test_a_random_damage_is_found_or_changes_nothing_that_is_served(
    stores: list[BaseStores], tmp_path: Path
) -> None:
    outcomes = list(campaign(stores, tmp_path, SEED, range(DAMAGES)))
    assert len(outcomes) == DAMAGES
    assert [one for one in outcomes if one.result in (UNPLACED, MISSED)] == []
    assert Counter(one.result for one in outcomes)[FOUND] >= DAMAGES // 4


def test_a_run_that_knows_the_undamaged_stores_finds_what_one_that_reads_all_finds(
    stores: list[BaseStores], tmp_path: Path
) -> None:
    roots = [tmp_path / f"d{number}" for number in range(DAMAGES)]
    chosen = [stores[number % len(stores)] for number in range(DAMAGES)]
    for root, bases in zip(roots, chosen, strict=True):
        copy_folder(bases.final, root, "lock")
    request = AuditRequest(
        stores=tuple(StorePlace(str(root), root.name, 0) for root in roots), is_deep=True
    )

    def told(engine: LocalRun) -> Counter[tuple[object, ...]]:
        names = ("check", "severity", "broker_name", "topic", "queue_id", "evidence", "affected")
        found = audit(engine, request).findings
        return Counter(tuple(one[name] for name in names) for one in found)

    kept = Kept()
    sound = told(LocalRun(None, kept))
    for number, (root, bases) in enumerate(zip(roots, chosen, strict=True)):
        if number % 2:
            damage(root, bases, random.Random(f"{SEED}/{number}"))
    kept.begin(is_full=False)
    damaged = told(LocalRun(None, kept))
    assert kept.spared_bytes > 0
    assert damaged == told(LocalRun())
    assert damaged != sound


@pytest.mark.parametrize("kind", CHANGES)
def test_a_kind_of_damage_changes_the_store_it_is_done_to_and_says_where(
    stores: list[BaseStores], tmp_path: Path, kind: str
) -> None:
    bases = stores[0]
    chance = random.Random(f"{SEED}/{kind}")
    root = tmp_path / "store"
    copy_folder(bases.final, root)
    done = next(text for _ in range(20) if (text := CHANGES[kind](root, bases, chance)) is not None)

    def content(store: Path) -> dict[str, bytes]:
        files = (path for path in store.rglob("*") if path.is_file())
        return {str(path.relative_to(store)): path.read_bytes() for path in files}

    before, after = content(bases.final), content(root)
    changed = {name for name in before if before[name] != after.get(name)}
    assert len(changed) == 1
    assert done.startswith((*changed, "AEROBEE_"))
