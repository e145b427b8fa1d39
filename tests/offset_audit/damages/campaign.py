"""Random damages: each is found by the audit, or a broker serves what it served before.

    python -m tests.offset_audit.damages.campaign --damages 1000 --seed 7

The stores are one with everything that our broker keeps and two of Apache's. Prints how many of
each kind were found or harmless, and each one that was neither: `unseen` is a setting or a byte
of a record that nothing repeats, `unplaced` was found by a finding that does not say where, and
`missed` is anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aerobee.offset_audit.run.local_run import LocalRun
from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from tests.offset_audit.damages.auditing import audit
from tests.offset_audit.damages.base_store import BaseStores
from tests.offset_audit.damages.full_store import GOLDEN, build_full_stores, golden_stores
from tests.offset_audit.damages.named_places import is_named
from tests.offset_audit.damages.random_damages import damage, segment_bytes_of
from tests.offset_audit.damages.serving import Sound, served, sound_store
from tests.offset_audit.damages.untold_bytes import is_only_untold
from tests.support.sparse_copy import copy_folder

TOGETHER = 25
"""So many stores are audited at once."""
FOUND, HARMLESS, UNSEEN = "found", "harmless", "unseen"
UNPLACED, MISSED = "unplaced", "missed"
OURS_OF = 4
"""So many damages in a row are done to our store, one in each, before one is done to Apache's."""
SETTINGS = {"config/topics.json": "topics", "config/subscriptionGroup.json": "groups"}
"""Files whose readable changes nothing in a store can show, and what a broker then serves
differently: Apache's format has no checksum. Nor does anything repeat what a whole record of POP's
journal says was finished. The reasons are in docs/audit-findings.md."""
OFFSETS = {"config/consumerOffset.json": "commits"}
"""The same of a store that Apache's broker left: only ours writes a checksum, and a journal."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one damage."""

    number: int
    kind: str
    done: str
    result: str
    differs: str = ""
    """What a broker serves differently; of an unplaced one, what was said."""


def campaign(
    stores: Sequence[BaseStores], folder: Path, seed: int, numbers: range
) -> Iterator[Outcome]:
    """The outcome of each damage; one number and seed is always the same damage of a store."""
    sound = [sound_store(each, folder / "served") for each in stores]
    for begin in range(numbers.start, numbers.stop, TOGETHER):
        some = range(begin, min(begin + TOGETHER, numbers.stop))
        done: dict[int, tuple[str, str]] = {}
        for number in some:
            bases = stores[_store_of(number, len(stores))]
            root = folder / f"d{number}"
            copy_folder(bases.final, root, "lock")
            done[number] = damage(root, bases, random.Random(f"{seed}/{number}"))
        places = tuple(StorePlace(str(folder / f"d{number}"), f"d{number}", 0) for number in some)
        summary = audit(LocalRun(), AuditRequest(stores=places, is_deep=True))
        told: dict[str, list[Mapping[str, Any]]] = {}
        for one in summary.findings:
            if one["severity"] != "INFO":
                told.setdefault(one["broker_name"], []).append(one)
        for number, (kind, text) in done.items():
            place = _store_of(number, len(stores))
            root = folder / f"d{number}"
            given = told.get(root.name, [])
            outcome = _outcome(number, (kind, text), root, sound[place], given)
            is_unseen = place > 0 and OFFSETS.get(text.partition(":")[0]) == outcome.differs
            is_unseen &= outcome.result == MISSED
            yield replace(outcome, result=UNSEEN) if is_unseen else outcome
            shutil.rmtree(root)


def _store_of(number: int, stores: int) -> int:
    """Mostly the first."""
    turn, place = divmod(number, OURS_OF)
    return 1 + turn % (stores - 1) if stores > 1 and place == OURS_OF - 1 else 0


def _outcome(
    number: int,
    done: tuple[str, str],
    root: Path,
    sound: Sound,
    findings: Sequence[Mapping[str, Any]],
) -> Outcome:
    kind, text = done
    bases, before = sound.bases, sound.served
    where = text.partition(":")[0]
    if findings:
        is_placed = is_named(findings, text, bases.final)
        said = "" if is_placed else "; ".join(str(one["evidence"]) for one in findings)
        return Outcome(number, kind, text, FOUND if is_placed else UNPLACED, said)
    after = served(root, root.with_name("served"), bases, sound)
    differs = ", ".join(
        f"{name} {after[name]}" if name == "refused" else name
        for name in after
        if name != "searched" and after[name] != before.get(name)
    )
    if not differs:
        return Outcome(number, kind, text, HARMLESS)
    is_unseen = (
        (kind == "journal entry" and differs == "pop")
        or differs == SETTINGS.get(where)
        or is_only_untold(bases.final, root, segment_bytes_of(bases))
    )
    return Outcome(number, kind, text, UNSEEN if is_unseen else MISSED, differs)


def all_stores(folder: Path) -> list[BaseStores]:
    """Ours first."""
    ours, golden = folder / "ours", folder / "golden"
    ours.mkdir()
    stores = [asyncio.run(build_full_stores(ours))]
    return stores + [golden_stores(golden, name) for name in GOLDEN]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--damages", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = all_stores(folder)
        numbers = range(given.first, given.first + given.damages)
        for one in campaign(stores, folder, given.seed, numbers):
            counts[one.kind, one.result] += 1
            if one.result in (UNSEEN, UNPLACED, MISSED):
                text = f"{one.result} {one.number}: {one.done}; {one.differs}"
                print(text[:400], flush=True)
            if counts.total() % (4 * TOGETHER) == 0:
                print(f"{counts.total()} damages done", flush=True)
    for (kind, result), count in sorted(counts.items()):
        print(f"{kind}: {count} {result}")
    return 1 if any(result in (UNPLACED, MISSED) for _, result in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
