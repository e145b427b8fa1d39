"""The report's content: plain values, bounded whatever the cluster.

Everything left out is counted (`..._total`, `..._more`), so that the page can say so. None means
"not known", never zero. Times are Unix milliseconds; ages of messages and commits are relative to
`judged_at_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SEVERITIES = ("CRITICAL", "ERROR", "WARNING", "INFO")
"""Worst first."""

STATES = ("STUCK", "STOPPED", "SLOW", "LAGGING", "UNKNOWN", "OK")
"""What needs attention first."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much the page shows; the rest is counted. A page of these sizes stays below 2 MB."""

    findings: int = 200
    findings_per_check: int = 40
    brokers: int = 60
    groups: int = 40
    topics: int = 40
    pairs: int = 80
    """Pairs of group and topic whose queues can be viewed."""
    pairs_each: int = 12
    """Topics shown of one group, and groups of one topic."""
    queues_each: int = 12
    heat_rows: int = 30
    heat_cells: int = 64
    """In one row; if a row has more queues, a cell stands for several and shows the worst."""
    history_runs: int = 60


@dataclass(frozen=True, slots=True)
class CheckFact:
    """One check of this run."""

    name: str
    title: str
    is_deep: bool
    ran: bool


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The run itself."""

    cluster: str
    run_id: str
    run_at_ms: int
    judged_at_ms: int
    """As in the summary: the run's moment, or for files at rest their newest one."""
    took_ms: int | None
    depth: str
    """`snapshot` or `deep`."""
    sources: tuple[str, ...]
    """Where it read: addresses, folders."""
    version: str
    checks: tuple[CheckFact, ...]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One finding; empty strings and None where it has no such place."""

    check: str
    severity: str
    evidence: str
    affected: int | None
    command: str
    cluster: str = ""
    broker_name: str = ""
    broker_id: int | None = None
    role: str = ""
    epoch: int | None = None
    topic: str = ""
    queue_id: int | None = None
    group: str = ""
    state: str = ""
    previous_state: str = ""
    first_seen_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CheckCount:
    """How many findings of one check have one severity."""

    check: str
    severity: str
    findings: int
    affected: int | None = None
    """In all; None: not known."""


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One replica that was asked, or one store at rest."""

    broker_name: str
    broker_id: int | None
    role: str
    answered: bool
    error: str
    address: str
    epoch: int | None
    version: str
    log_min_offset: int | None
    appended_end: int | None
    confirmed_end: int | None
    in_sync: tuple[int, ...] | None
    replication_mode: str
    flush_mode: str


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A group's progress on one queue."""

    broker_name: str
    queue_id: int
    committed_offset: int | None
    min_offset: int | None
    max_offset: int | None
    lag: int | None
    matching_lag: int | None
    first_unread_ms: int | None
    committed_at_ms: int | None
    holder: str
    state: str
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """Sums over the queues of a group, a topic, or one group on one topic."""

    queues: int
    lag: int | None
    """Over the queues for which it is known."""
    matching_lag: int | None
    unknown: int
    """Queues with unknown lag."""
    first_unread_ms: int | None
    states: Mapping[str, int]
    """Queues by state."""

    @property
    def worst_state(self) -> str:
        return next((state for state in STATES if self.states.get(state)), "OK")


@dataclass(frozen=True, slots=True)
class PairRow:
    """One group on one topic."""

    group: str
    topic: str
    progress: Progress
    queues: tuple[QueueRow, ...] = ()
    """The worst ones; empty if this pair's queues cannot be viewed."""


@dataclass(frozen=True, slots=True)
class LagPoint:
    """A group in one run. None: unknown at that time."""

    run_at_ms: int
    lag: int | None
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """Messages that a group could not handle: `again` in the retry topic, and not finished there;
    and the total. None means unknown."""

    sent: int | None = None
    finished: int | None = None
    waiting: int | None = None
    again: int | None = None
    dead: int | None = None


@dataclass(frozen=True, slots=True)
class GroupRow:
    group: str
    members: int | None
    topics: int
    progress: Progress
    points: tuple[LagPoint, ...]
    """Oldest run first, this run last."""
    pairs: tuple[PairRow, ...]
    failed: Failed | None = None
    """None: none failed."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """`messages`: what is between the minima and the maxima of its `queues`. `progress`: of all
    groups that read it. `waiting`: messages for it in system topics, as far as stores were read."""

    topic: str
    queues: int | None
    messages: int | None
    groups: int
    progress: Progress
    pairs: tuple[PairRow, ...]
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One queue of a row, or several neighbours (`queues` > 1), of which the worst is shown."""

    broker_name: str
    queue_id: int
    queues: int
    lag: int | None
    first_unread_ms: int | None
    state: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    group: str
    topic: str
    queues: int
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """For the whole cluster, whatever the page leaves out."""

    brokers: int
    brokers_answered: int
    groups: int
    topics: int
    pairs: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that one report needs."""

    run: RunFacts
    totals: Totals
    counts: tuple[CheckCount, ...]
    findings: tuple[FindingRow, ...]
    brokers: tuple[BrokerRow, ...]
    groups: tuple[GroupRow, ...]
    topics: tuple[TopicRow, ...]
    heat: tuple[HeatRow, ...]
    bounds: Bounds = Bounds()

    @property
    def findings_total(self) -> int:
        return sum(count.findings for count in self.counts)

    def of_severity(self, severity: str) -> int:
        return sum(count.findings for count in self.counts if count.severity == severity)

    @property
    def worst_severity(self) -> str | None:
        return next((one for one in SEVERITIES if self.of_severity(one)), None)
