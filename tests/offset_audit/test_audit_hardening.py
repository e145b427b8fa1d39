"""Several stores, several runs, odd numbers: what an audit makes of them is never wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aerobee.offset_audit.outputs.ledger import Ledger, RunEntry
from aerobee.offset_audit.outputs.spark_ledger import SparkLedgerFiles
from aerobee.offset_audit.run.engine import SMALL_ROWS
from aerobee.offset_audit.run.identities import heard_stores
from aerobee.offset_audit.run.session import (
    SMALL_SETTINGS,
    TINY_ROWS,
    TINY_SETTINGS,
    settings_for,
    suit_more,
)
from aerobee.offset_audit.sources.store import pending
from aerobee.offset_audit.sources.store.plain_values import decimal
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.format.properties import find_values


class FakeBrokers:
    """A table of brokers, by their identities."""

    def __init__(self, *identities: tuple[str, str, int]) -> None:
        self._rows = [
            dict(zip(("cluster", "broker_name", "broker_id"), one, strict=True))
            for one in identities
        ]

    def select(self, *_names: str) -> FakeBrokers:
        return self

    def where(self, _condition: str) -> FakeBrokers:
        return self

    def collect(self) -> list[dict[str, object]]:
        return self._rows


def test_two_stores_of_one_broker_are_refused() -> None:
    live = cast(Any, FakeBrokers(("c", "a", 0), ("c", "b", 0)))
    apart = cast(Any, FakeBrokers(("c", "a", 0), ("c", "a", 1)))
    assert heard_stores(live, apart) == [("c", "a", 0)]
    twins = cast(Any, FakeBrokers(("", "store", 0), ("", "store", 0)))
    with pytest.raises(InvalidArgument, match="two stores are of broker store:0"):
        heard_stores(live, twins)


class FakeFolder:
    """A ledger's folder on this machine, and what was removed from it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.removed: list[str] = []

    def path(self, name: str = "") -> str:
        return str(self.root / name)

    def names(self, name: str = "") -> list[str]:
        folder = self.root / name
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def files_below(self, name: str) -> list[str]:
        return []

    def remove(self, name: str) -> None:
        self.removed.append(name)
        shutil.rmtree(self.root / name, ignore_errors=True)

    def write(self, name: str, content: bytes) -> None:
        return None


def test_a_run_removes_from_its_ledger_only_what_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = FakeFolder(tmp_path)
    monkeypatch.setattr(
        "aerobee.offset_audit.outputs.spark_ledger.Folder", lambda session, path: folder
    )
    ledger = Ledger(SparkLedgerFiles(cast(Any, None), str(tmp_path)))
    for each in ("run-6", "run-7"):  # both write their tables
        (tmp_path / f".staging-{each}").mkdir()
    ledger.append(RunEntry("run-7", 1, 1, "quick", "scope", ("c",), 0), {})
    assert folder.removed
    assert all("run-7" in name for name in folder.removed)
    assert folder.names() == [".staging-run-6"]


def test_drills_into_many_blocks_are_not_done_with_the_settings_of_few_rows() -> None:
    settings: dict[str, str] = {}
    conf = SimpleNamespace(
        get=lambda key, default: settings.get(key, default),
        set=settings.__setitem__,
        unset=lambda key: settings.pop(key, None),
    )
    launched = {"spark.sql.shuffle.partitions": "8"}
    context = SimpleNamespace(getConf=lambda: launched)
    session = cast(Any, SimpleNamespace(conf=conf, sparkContext=context))
    settings["spark.sql.shuffle.partitions"] = "8"
    for rows, suited in ((1_000, TINY_SETTINGS), (TINY_ROWS, SMALL_SETTINGS)):
        with settings_for(session, rows):
            assert settings == suited
            suit_more(session, SMALL_ROWS - 1)
            assert settings == suited
            suit_more(session, 300 * 65_536)
            assert settings == launched
        assert settings == launched


@pytest.mark.parametrize("text", ["\u00b2", "\u0663", "9" * 30, "-1", "", " 1", "1_0"])
def test_what_a_producer_writes_for_a_number_ends_no_audit(text: str) -> None:
    assert decimal(text) is None
    written = f"TIMER_OUT_MS\x01{text}\x02".encode()

    def property_values(needles: Iterable[bytes]) -> list[str | None]:
        return find_values(written, 0, len(written), needles)

    parts = SimpleNamespace(
        property_values=property_values, properties_bytes=written, physical_offset=0
    )
    record = cast(Any, parts)
    # A timer's number may have a sign, as in Apache's broker.
    assert pending.due_ms_or(record, 77) == (999 if text == "-1" else 77)


def test_a_number_of_a_producer_is_taken_as_it_is() -> None:
    assert decimal("0123") == 123
    assert decimal("9" * 18) == 10**18 - 1
