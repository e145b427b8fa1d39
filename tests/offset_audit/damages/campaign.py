"""Random damages: each is found by the audit, or a broker serves what it served before.

    python -m tests.offset_audit.damages.campaign --damages 1000 --seed 7

Prints how many of each kind were found or harmless, and each one that was neither: `unseen` is a
setting or a byte of a record that nothing repeats, `missed` anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aerobee.offset_audit.run.local_run import LocalRun
from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from tests.offset_audit.damages.auditing import audit
from tests.offset_audit.damages.base_store import BaseStores, build_stores
from tests.offset_audit.damages.random_damages import damage
from tests.offset_audit.damages.serving import served
from tests.offset_audit.damages.untold_bytes import is_only_untold

TOGETHER = 25
"""So many stores are audited at once."""
FOUND, HARMLESS, UNSEEN, MISSED = "found", "harmless", "unseen", "missed"
SETTINGS = {"config/topics.json": "topics", "config/subscriptionGroup.json": "groups"}
"""Files whose readable changes nothing in a store can show, and what a broker then serves
differently: Apache's format has no checksum. The reasons are in docs/audit-findings.md."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one damage."""

    number: int
    kind: str
    done: str
    result: str
    differs: str = ""
    """Of a missed one: what a broker serves differently."""


def campaign(bases: BaseStores, folder: Path, seed: int, numbers: range) -> Iterator[Outcome]:
    """The outcome of each damage; one number and seed is always the same damage of a store."""
    before = served(bases.final, folder / "served")
    assert "refused" not in before, before
    for begin in range(numbers.start, numbers.stop, TOGETHER):
        some = range(begin, min(begin + TOGETHER, numbers.stop))
        done: dict[int, tuple[str, str]] = {}
        for number in some:
            root = folder / f"d{number}"
            shutil.copytree(bases.final, root, ignore=shutil.ignore_patterns("lock"))
            done[number] = damage(root, bases, random.Random(f"{seed}/{number}"))
        stores = tuple(StorePlace(str(folder / f"d{number}"), f"d{number}", 0) for number in some)
        findings = audit(LocalRun(), AuditRequest(stores=stores, is_deep=True)).findings
        told = {one["broker_name"] for one in findings if one["severity"] != "INFO"}
        for number, (kind, text) in done.items():
            root = folder / f"d{number}"
            result, differs = FOUND, ""
            if root.name not in told:
                after = served(root, folder / "served")
                differs = ", ".join(
                    f"{name} {after[name]}" if name == "refused" else name
                    for name in after
                    if after[name] != before.get(name)
                )
                is_unseen = differs == SETTINGS.get(text.partition(":")[0]) or (
                    is_only_untold(bases.final, root)
                )
                result = (UNSEEN if is_unseen else MISSED) if differs else HARMLESS
            yield Outcome(number, kind, text, result, differs)
            shutil.rmtree(root)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--damages", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "base").mkdir()
        bases = asyncio.run(build_stores(folder / "base"))
        numbers = range(given.first, given.first + given.damages)
        for one in campaign(bases, folder, given.seed, numbers):
            counts[one.kind, one.result] += 1
            if one.result in (UNSEEN, MISSED):
                text = f"{one.result} {one.number}: {one.done}; differs: {one.differs}"
                print(text[:400], flush=True)
    for (kind, result), count in sorted(counts.items()):
        print(f"{kind}: {count} {result}")
    return 1 if any(result == MISSED for _, result in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
