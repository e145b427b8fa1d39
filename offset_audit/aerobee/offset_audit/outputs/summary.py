"""A run in one small document: what a program or a person needs to decide what to do next.

Bounded whatever the size of the cluster: what was left out is counted. It is the content of
`summary.json`, the source of the metrics and of what the command prints. `docs/audit.md` describes
its keys; `SCHEMA_VERSION` rises when one changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aerobee.offset_audit.checks.check import Severity
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.outputs.after import FINDINGS_MAX, After
from aerobee.offset_audit.outputs.together import rank
from aerobee.offset_audit.outputs.verdict import effect_of, found, lost, not_read

SCHEMA_VERSION = 1

GROUPS_MAX = 100
WAITING_MAX = 100
BROKERS_MAX = 100

EXIT_CODES = {None: 0, "INFO": 0, "WARNING": 1, "ERROR": 2, "CRITICAL": 3}
"""By the worst severity of a run."""

STATE_ORDER = ("STOPPED", "STUCK", "SLOW", "LAGGING", "UNKNOWN", "OK")
"""Worst first."""


@dataclass(frozen=True, slots=True)
class Summary:
    """See `docs/audit.md`. Times are Unix milliseconds; None means unknown."""

    run_id: str
    run_at_ms: int
    judged_at_ms: int
    """The moment to which ages are relative: the run's, or for files at rest their newest one."""
    took_ms: int
    """Until the findings were known: the documents contain this number."""
    depth: str
    engine: str
    """Where the rules ran: local (in the command's own process) or spark."""
    clusters: tuple[str, ...]
    version: str
    counts: Mapping[str, int]
    """Findings by severity, all four."""
    checks: tuple[Mapping[str, Any], ...]
    """check, severity, findings, affected (None: not known of any), worst first."""
    findings: tuple[Mapping[str, Any], ...]
    """The worst `FINDINGS_MAX`, as in the table of findings."""
    states: Mapping[str, int]
    """Queues of groups by state."""
    groups: tuple[Mapping[str, Any], ...]
    """The `GROUPS_MAX` pairs of group and topic that need attention first."""
    groups_total: int
    brokers: tuple[Mapping[str, Any], ...]
    """Those that did not answer first, at most `BROKERS_MAX`."""
    brokers_total: int
    brokers_answered: int
    stages_ms: Mapping[str, int]
    rows: Mapping[str, int]
    """How many rows were read, by table."""
    waiting: tuple[Mapping[str, Any], ...] = ()
    """By topic and kind, the `WAITING_MAX` with the most messages in system topics."""
    waiting_total: int = 0
    """Pairs of topic and kind."""
    failed: tuple[Mapping[str, Any], ...] = ()
    """For the `GROUPS_MAX` groups with the most failed messages: how many are in which state."""
    failed_total: int = 0
    """Groups with failed messages."""
    notes: tuple[str, ...] = ()
    """What the run was asked for but could not see, a sentence each."""
    after: After | None = None
    """What is new, and what became of the findings, since the run that `--after` names, or the
    newest comparable one of the history."""
    not_asked: tuple[str, ...] = ()
    """Checks that a run of this depth, with these sources, does not make."""

    @property
    def worst(self) -> str | None:
        """The worst severity found."""
        return next((one for one in reversed(Severity) if self.counts.get(one)), None)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.worst]

    @property
    def findings_total(self) -> int:
        return sum(self.counts.values())

    @property
    def verdict(self) -> str:
        """What is lost, what was found and what was not read, a sentence each."""
        losses = {
            one["check"]: one["affected"] for one in self.checks if one["severity"] == "CRITICAL"
        }
        return f"{lost(losses)}{found(self.counts)}. {not_read(self.depth, self.not_asked)}"

    def document(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        findings = [
            {**one, "command_effect": effect_of(one["command"]) if one.get("command") else None}
            for one in self.findings
        ]
        return {
            "schema_version": SCHEMA_VERSION,
            "verdict": self.verdict,
            "worst": self.worst,
            "exit_code": self.exit_code,
            "findings_total": self.findings_total,
            **asdict(self),
            "findings": findings,
        }

    def text(self) -> str:
        return json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n"


def collect_parts(
    findings: Frame,
    states: Frame,
    brokers: Frame,
    waiting: Frame,
    failed: Frame,
) -> dict[str, list[dict[str, Any]]]:
    """What a summary needs from a run's tables, in one job; each part is bounded first.

    `waiting`, `failed`: from `waiting_by_topic` and `failed_by_group`."""
    pairs = states.groupBy("cluster", "group", "topic").agg(
        "count(1) queues",
        "try_sum(lag) lag",
        "try_sum(matching_lag) matching_lag",
        "count_if(lag is null) unknown",
        "min(first_unread_ms) first_unread_ms",
        "max(members) members",
        f"min({rank('state', STATE_ORDER).sql}) worst",
    )
    names = F.array(*map(F.lit, (*STATE_ORDER, "UNKNOWN")))
    parts = {
        "checks": findings.groupBy("check", "severity")
        .agg("count(1) findings", "try_sum(affected) affected")
        .orderBy(rank("severity", _WORST_FIRST), "check"),
        "findings": findings.orderBy(
            rank("severity", _WORST_FIRST),
            F.desc_nulls_last("affected"),
            *("check", "broker_name", "broker_id", "group", "topic", "queue_id"),
        ).limit(FINDINGS_MAX),
        "states": states.groupBy("state").agg("count(1) queues"),
        "groups": pairs.orderBy("worst", F.desc_nulls_last("lag"), "cluster", "group", "topic")
        .limit(GROUPS_MAX)
        .withColumn("state", F.get(names, F.col("worst")))
        .drop("worst"),
        "groups_total": pairs.agg("count(1) pairs"),
        "brokers": brokers.orderBy("answered", "cluster", "broker_name", "broker_id").limit(
            BROKERS_MAX
        ),
        "brokers_total": brokers.agg("count(1) asked", "sum(cast(answered as int)) answered"),
        "waiting": waiting.orderBy(F.desc("messages"), "cluster", "topic", "kind").limit(
            WAITING_MAX
        ),
        "failed": failed.orderBy(
            F.named("dead + coalesce(again, 0) + coalesce(waiting, 0) desc nulls last"),
            "cluster",
            "group",
        ).limit(GROUPS_MAX),
        "failed_total": failed.agg("count(1) groups"),
        "waiting_total": waiting.agg("count(1) pairs"),
    }
    return findings.engine.collect(parts, keeps_nulls=True)


_WORST_FIRST = tuple(str(one) for one in reversed(Severity))
