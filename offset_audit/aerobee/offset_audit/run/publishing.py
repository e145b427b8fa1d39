"""What a run writes: the tables, the summary, the metrics, the report."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aerobee.offset_audit.checks.data.waiting import failed_by_group, waiting_by_topic
from aerobee.offset_audit.checks.registry import all_checks, checks_for
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.outputs.ledger import Ledger, RunEntry
from aerobee.offset_audit.outputs.prometheus import metrics_text
from aerobee.offset_audit.outputs.report.collect import report_data
from aerobee.offset_audit.outputs.report.data import CheckFact, RunFacts
from aerobee.offset_audit.outputs.report.render import render
from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.rules.names import IS_SYSTEM_TOPIC
from aerobee.offset_audit.run.engine import RunEngine
from aerobee.offset_audit.run.progress import TimedProgress
from aerobee.offset_audit.run.request import AuditRequest
from aerobee.offset_audit.tables import Tables

SUMMARY_FILE = "summary.json"
METRICS_FILE = "metrics.prom"
REPORT_FILE = "report.html"

RANGE_TABLES = ("log_ranges", "queue_ranges", "index_ranges")


@dataclass(frozen=True, slots=True)
class Judged:
    """A run whose findings are known and not yet written."""

    entry: RunEntry
    tables: Tables
    states: Frame
    findings: Frame
    summary: Summary
    runs: tuple[RunEntry, ...]
    """Earlier ones, newest first."""


def publish(
    request: AuditRequest,
    judged: Judged,
    ledger: Ledger | None,
    *,
    engine: RunEngine,
    progress: TimedProgress,
) -> Summary:
    """Write everything requested; the summary then contains the duration of each stage."""
    if ledger is not None:
        with progress.stage("tables"):
            ledger.append(judged.entry, _tables(request, judged))
    out = request.out.rstrip("/") if request.out is not None else None
    report = request.report or (f"{out}/{REPORT_FILE}" if out is not None else None)
    if report is not None:
        with progress.stage("report"):
            engine.replace_document(report, _report(request, judged))
        progress.note(f"report: {report}")
    summary = replace(judged.summary, stages_ms=dict(progress.stages_ms))
    if out is not None:
        # A node exporter, which reads it, runs as another user.
        engine.replace_document(f"{out}/{METRICS_FILE}", metrics_text(summary), for_all=True)
        # Last, so that a process that waits for it finds everything else.
        engine.replace_document(f"{out}/{SUMMARY_FILE}", summary.text())
    return summary


def _tables(request: AuditRequest, judged: Judged) -> dict[str, Frame]:
    found = {"findings": judged.findings, "state": judged.states}
    if request.is_deep:
        found |= {name: getattr(judged.tables, name) for name in RANGE_TABLES}
    return found


def _report(request: AuditRequest, judged: Judged) -> str:
    summary = judged.summary
    checks = checks_for(is_deep=request.is_deep, has_stores=bool(request.stores))
    ran = {one.name for one in checks}
    run = RunFacts(
        cluster=", ".join(name for name in summary.clusters if name),
        run_id=summary.run_id,
        run_at_ms=summary.run_at_ms,
        judged_at_ms=summary.judged_at_ms,
        took_ms=summary.took_ms,
        depth=summary.depth,
        sources=_sources(request),
        version=summary.version,
        checks=tuple(
            CheckFact(one.name, one.title, one.is_deep, one.name in ran) for one in all_checks()
        ),
    )
    data = report_data(
        run,
        states=judged.states,
        findings=judged.findings,
        brokers=judged.tables.brokers,
        # The page is of users' topics, as `aerobee topic list` is.
        queues=judged.tables.queues.where(f"not {IS_SYSTEM_TOPIC}"),
        history=judged.tables.history,
        waiting=waiting_by_topic(judged.tables),
        failed=failed_by_group(
            judged.tables,
            judged.states,
            knows_waiting=request.is_live or (request.is_deep and bool(request.stores)),
        ),
    )
    return render(data)


def _sources(request: AuditRequest) -> tuple[str, ...]:
    live = [one for one in (request.nameservers, request.brokers) if one]
    return (*live, *(place.path for place in request.stores))
