"""Findings know since when they stand and what was before, over runs of any depth."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.frame import Engine, Frame
from aerobee.offset_audit.outputs.ledger import SCHEMA_VERSION, RunEntry
from aerobee.offset_audit.run.linking import comparable, linked_findings
from aerobee.offset_audit.tables import FINDINGS, STATES

pytestmark = pytest.mark.slow

QUEUE = {"cluster": "c", "broker_name": "b", "topic": "t", "queue_id": 0, "group": "g"}
STORE = {"cluster": None, "broker_name": "b", "broker_id": 1}


def entry(number: int, depth: str = "snapshot", scope: str = "all") -> RunEntry:
    return RunEntry(f"run-{number}", number * 1_000, SCHEMA_VERSION, depth, scope, ("c",), 0)


def rows_of(engine: Engine, columns: str, *rows: dict[str, Any]) -> Frame:
    names = names_of(columns)
    return engine.frame(columns, [tuple(row.get(name) for name in names) for row in rows])


class Runs:
    """Runs one after another; each is compared with those before it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._entries: list[RunEntry] = []
        self._findings: list[dict[str, Any]] = []
        self._states: list[dict[str, Any]] = []

    def run(
        self, run: RunEntry, *findings: dict[str, Any], state: str | None = None
    ) -> dict[str, tuple[int, str | None]]:
        """first_seen_ms and previous_state of each finding, by check."""
        linked = linked_findings(
            rows_of(self._engine, FINDINGS, *findings),
            run,
            comparable(self._entries, run.scope),
            earlier_findings=rows_of(self._engine, FINDINGS, *self._findings),
            earlier_states=rows_of(self._engine, STATES, *self._states),
            deep_checks=["GAP"],
        )
        assert linked.columns == names_of(FINDINGS)
        rows = linked.collect()
        assert len(rows) == len(findings)
        self._findings += rows
        if state is not None:
            moment = {"run_id": run.run_id, "run_at_ms": run.run_at_ms}
            self._states.append({**QUEUE, **moment, "state": state})
        self._entries.insert(0, run)
        return {row["check"]: (row["first_seen_ms"], row["previous_state"]) for row in rows}


def test_a_state_that_gets_worse_keeps_since_when_and_knows_what_was(engine: Engine) -> None:
    runs = Runs(engine)
    lag = {**QUEUE, "check": "LAG", "state": "LAGGING"}
    stuck = {**QUEUE, "check": "STUCK", "state": "STUCK"}
    assert runs.run(entry(1), lag, state="LAGGING") == {"LAG": (1_000, None)}
    assert runs.run(entry(2), lag, state="LAGGING") == {"LAG": (1_000, "LAGGING")}
    assert runs.run(entry(3), stuck, state="STUCK") == {"STUCK": (3_000, "LAGGING")}
    assert runs.run(entry(4), lag, state="LAGGING") == {"LAG": (4_000, "STUCK")}


def test_what_was_gone_is_new_when_it_comes_back(engine: Engine) -> None:
    runs = Runs(engine)
    lag = {**QUEUE, "check": "LAG", "state": "LAGGING"}
    runs.run(entry(1), lag, state="LAGGING")
    runs.run(entry(2), state="OK")
    assert runs.run(entry(3), lag, state="LAGGING") == {"LAG": (3_000, "OK")}


def test_a_snapshot_between_does_not_make_deep_findings_new(engine: Engine) -> None:
    runs = Runs(engine)
    gap = {**STORE, "check": "GAP"}
    assert runs.run(entry(1, "deep"), gap) == {"GAP": (1_000, None)}
    runs.run(entry(2))
    assert runs.run(entry(3, "deep"), gap) == {"GAP": (1_000, None)}
    # An unnamed cluster and no cluster are the same place; another broker is not.
    other = {**gap, "cluster": "", "broker_id": 2}
    assert runs.run(entry(4, "deep"), other) == {"GAP": (4_000, None)}


def test_runs_of_another_scope_do_not_count(engine: Engine) -> None:
    runs = Runs(engine)
    lag = {**QUEUE, "check": "LAG", "state": "LAGGING"}
    runs.run(entry(1), lag, state="LAGGING")
    assert runs.run(entry(2, scope="narrow"), lag) == {"LAG": (2_000, None)}
    assert runs.run(entry(3), lag) == {"LAG": (1_000, "LAGGING")}
