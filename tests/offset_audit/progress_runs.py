"""Runs all checks of progress over made tables, in as few Spark jobs as can be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from pyspark.sql import Row

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.progress import CHECKS, find_changes, find_moves, judge, progress
from aerobee.offset_audit.frames.frame import Engine, Frame, union
from aerobee.offset_audit.frames.spark_frame import SparkFrame
from aerobee.offset_audit.run.cutting import at_hand, cut
from tests.offset_audit.table_builders import NOW_MS, TableRows, as_rows

DOCS = Path(__file__).resolve().parents[2] / "docs" / "audit-findings.md"


def shown(row: Row) -> bool:
    """Whether docs/audit-findings.md has this finding's sentence, with everyday names."""
    told = row.evidence.replace(f"t-{row.group}", "Orders").replace(
        f"roup {row.group} ", "roup billing "
    )
    quotes = re.findall(r"(?m)(?:^> .*\n?)+", DOCS.read_text("utf-8"))
    return told in {" ".join(quote.replace("> ", "").split()) for quote in quotes}


def _kept(frame: Frame, is_large: bool) -> Frame:
    if not isinstance(frame, SparkFrame):
        return frame
    if not is_large and (found := at_hand(frame.data)) is not None:
        return SparkFrame(found[0])
    return SparkFrame(cut(frame.data).persist())


class ProgressRun:
    """What one run found and which states it kept."""

    def __init__(
        self,
        engine: Engine,
        rows: TableRows,
        limits: Limits | None = None,
        *,
        with_findings: bool = True,
        is_large: bool = False,
    ) -> None:
        """`is_large`: as with tables of too many rows to be part of a plan."""
        limits = limits or Limits(now_ms=NOW_MS)
        tables = rows.tables(engine)
        changed = _kept(find_changes(tables, limits), is_large)
        tables = replace(tables, changes=changed)
        judged = _kept(judge(tables, limits), is_large)
        tables = replace(tables, judged=judged)
        moved = _kept(find_moves(tables, limits), is_large)
        tables = replace(tables, moves=moved)
        self.states: list[Row] = as_rows(progress(tables, limits))
        found = [check.run(tables, limits) for check in CHECKS if with_findings]
        self.findings: list[Row] = as_rows(union(found)) if found else []
        for one in (moved, judged, changed):
            if isinstance(one, SparkFrame):
                one.data.unpersist()

    def of(self, group: str) -> list[Row]:
        """The findings about one group, sorted by check."""
        return sorted(
            (row for row in self.findings if row.group == group), key=lambda row: row.check
        )

    def checks(self, group: str) -> list[str]:
        """The names of the checks that found something about one group."""
        return [row.check for row in self.of(group)]

    def only(self, group: str) -> Row:
        """The one finding about one group."""
        (row,) = self.of(group)
        return row

    def state(self, group: str, queue_id: int = 0) -> Row:
        """The one state of a group on a queue."""
        (row,) = [row for row in self.states if (row.group, row.queue_id) == (group, queue_id)]
        return row
