"""A cluster goes on while it is read: what is newer than the reading before it is no damage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.replicas import CHECKS
from aerobee.offset_audit.frames.frame import Engine
from aerobee.offset_audit.run.identities import until_answered
from tests.offset_audit.table_builders import NOW_MS, TableRows

pytestmark = pytest.mark.slow

LIMITS = Limits(now_ms=NOW_MS)


def test_files_read_after_an_election_do_not_tell_of_it(engine: Engine) -> None:
    rows = TableRows()
    rows.add("brokers", epoch=2)
    rows.add("brokers", broker_id=1, answered=False, epoch=None)
    for epoch in (1, 2, 3):
        rows.add("epochs", epoch=epoch, start_offset=epoch * 1_000)
        rows.add("epochs", epoch=epoch, start_offset=epoch * 1_000, broker_id=1)
    tables = rows.tables(engine)
    found = until_answered(tables.epochs, tables.brokers).collect()
    assert sorted((row["broker_id"], row["epoch"]) for row in found) == [
        *((0, 1), (0, 2)),
        *((1, 1), (1, 2), (1, 3)),
    ]


def test_what_is_stored_while_an_audit_reads_is_not_in_the_future(engine: Engine) -> None:
    rows = TableRows()
    minute = NOW_MS // 60_000 + 2
    rows.add("minutes", tier="STORED", topic="t", minute=minute, messages=1)
    tables = rows.tables(engine)
    check = next(one for one in CHECKS if one.name == "CLOCK")
    assert check.run(tables, LIMITS).count() == 1
    assert check.run(tables, replace(LIMITS, ended_ms=NOW_MS + 120_000)).count() == 0
