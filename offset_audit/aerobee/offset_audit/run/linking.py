"""What a run adds to the findings of its checks: which run, since when, and the state before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.columns_of_tables import columns_of
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.outputs.ledger import RunEntry
from aerobee.offset_audit.tables import FINDINGS

PLACE = ("cluster", "broker_name", "broker_id", "topic", "queue_id", "group")
"""The subject of a finding; together with the check it identifies the same finding in another run.
"""

_QUEUE = ("cluster", "broker_name", "topic", "queue_id", "group")


@dataclass(frozen=True, slots=True)
class Earlier:
    """The runs with which this one is compared, each the newest of the same scope."""

    any_run: RunEntry | None
    deep_run: RunEntry | None
    """Deep checks are compared with it: a snapshot in between does not make their findings new."""

    @property
    def runs(self) -> list[RunEntry]:
        found = {one.run_id: one for one in (self.any_run, self.deep_run) if one is not None}
        return list(found.values())


def comparable(runs: Sequence[RunEntry], scope: str) -> Earlier:
    """`runs`: newest first."""
    same = [run for run in runs if run.scope == scope]
    return Earlier(
        any_run=next(iter(same), None),
        deep_run=next((run for run in same if run.depth == "deep"), None),
    )


def of_same_sources(runs: Sequence[RunEntry], scope: str) -> list[RunEntry]:
    """The runs whose states are the history for one of this scope: a copy of a store is older than
    what a live cluster reported, and that is not a fall. Groups and topics may differ."""
    sources = _sources(scope)
    return [run for run in runs if _sources(run.scope) == sources]


def _sources(scope: str) -> tuple[bool, object]:
    """Whether brokers were asked, and which stores were read; for a text that is not one of our
    scopes, the text itself."""
    try:
        told = json.loads(scope)
    except ValueError:
        return False, scope
    if not isinstance(told, dict):
        return False, scope
    return bool(told.get("nameservers") or told.get("brokers")), told.get("stores")


def linked_findings(
    findings: Frame,
    run: RunEntry,
    earlier: Earlier,
    *,
    earlier_findings: Frame,
    earlier_states: Frame,
    deep_checks: Sequence[str],
) -> Frame:
    """All columns of FINDINGS; `earlier_...`: rows of at least the runs of `earlier`."""
    ours = findings.withColumn("cluster", F.coalesce("cluster", F.lit("")))
    before = _occurrences(earlier_findings, earlier, deep_checks)
    states = _states(earlier_states, earlier)
    matched = ours.join_where(before, _same(("check", *PLACE), "b_"), "left").join_where(
        states, _same(_QUEUE, "s_"), "left"
    )
    filled = {
        "run_id": F.lit(run.run_id),
        "run_at_ms": F.lit(run.run_at_ms),
        "previous_state": F.coalesce("s_state", "b_state"),
        "first_seen_ms": F.coalesce("b_first_seen_ms", F.lit(run.run_at_ms)),
    }
    return matched.select(
        *(
            filled.get(name, F.col(name)).cast(kind).alias(name)
            for name, kind in columns_of(FINDINGS)
        )
    )


def _occurrences(findings: Frame, earlier: Earlier, deep_checks: Sequence[str]) -> Frame:
    """Each finding of the run it is compared with, once."""
    is_deep = F.col("check").isin(list(deep_checks))
    compared = F.when(is_deep, _is_of(earlier.deep_run)).otherwise(_is_of(earlier.any_run))
    keys = ("check", *PLACE)
    return (
        findings.where(compared)
        .groupBy(*(F.col(name).alias(f"b_{name}") for name in keys))
        .agg("min(first_seen_ms) b_first_seen_ms", "max(state) b_state")
    )


def _states(states: Frame, earlier: Earlier) -> Frame:
    return (
        states.where(_is_of(earlier.any_run))
        .groupBy(*(F.col(name).alias(f"s_{name}") for name in _QUEUE))
        .agg("max(state) s_state")
    )


def _is_of(run: RunEntry | None) -> Column:
    return F.lit(False) if run is None else F.col("run_id") == run.run_id


def _same(names: Sequence[str], prefix: str) -> list[Column]:
    """Equal in all names, where null equals null."""
    return [F.col(name).eqNullSafe(F.col(f"{prefix}{name}")) for name in names]
