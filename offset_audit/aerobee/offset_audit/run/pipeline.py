"""One run of the audit, from its request to the exit code.

The order matters for correctness: first the registry, then the brokers (each copies commits before
ends), then files; checks judge only what was read before. Nothing that grows with the data reaches
the driver: findings and states stay in Spark, and only the bounded summary is collected.
"""

from __future__ import annotations

import importlib.metadata
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data.compare import compare
from aerobee.offset_audit.checks.data.waiting import failed_by_group, waiting_by_topic
from aerobee.offset_audit.checks.progress.journal import find_changes
from aerobee.offset_audit.checks.progress.judged import judge
from aerobee.offset_audit.checks.progress.judged import progress as progress_states
from aerobee.offset_audit.checks.progress.moves import find_moves
from aerobee.offset_audit.checks.progress.replicas import find_replicas
from aerobee.offset_audit.checks.registry import all_checks, checks_for
from aerobee.offset_audit.checks.replicas.leaders import REPLICA
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame, union
from aerobee.offset_audit.outputs.after import FINDINGS_MAX, After, after
from aerobee.offset_audit.outputs.ledger import SCHEMA_VERSION, Ledger, RunEntry
from aerobee.offset_audit.outputs.summary import Summary, collect_parts
from aerobee.offset_audit.run import reading as readings
from aerobee.offset_audit.run.engine import RunEngine
from aerobee.offset_audit.run.linking import comparable, linked_findings, of_same_sources
from aerobee.offset_audit.run.progress import Progress, TimedProgress
from aerobee.offset_audit.run.publishing import Judged, publish
from aerobee.offset_audit.run.request import HISTORY_RUNS, AuditRequest
from aerobee.offset_audit.tables import FINDINGS, Tables
from aerobee.runtime.clock import Clock

Reader = Callable[[AuditRequest, readings.Reading, Progress], dict[str, int]]
"""Fills the reading's tables; returns the rows read, by table."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The time and id of a run."""

    run_id: str
    run_at_ms: int


def run_audit(
    engine: RunEngine,
    request: AuditRequest,
    *,
    clock: Clock,
    chance: random.Random,
    progress: Progress,
    read: Reader = readings.read_all,
) -> Summary:
    """Read, judge, write what the request asks for, and return what was found.

    Raises:
        NothingToAudit: no broker and no store was found.
        InvalidArgument: a source refuses one of its options.
        Unreachable, DeadlineExceeded, RegistryUnavailable: the cluster does not answer.
        SparkFailed: a source or a check broke down; its own text is in the message.
        OSError: an output cannot be written.
    """
    timed = TimedProgress(progress, clock)
    run_at_ms = clock.now_ms()
    moment = Moment(_run_id(run_at_ms, chance), run_at_ms)
    reading = readings.begin(engine)
    try:
        rows = read(request, reading, timed)
        if reading.filled <= reading.settled:
            engine.forget()
        with engine.settings(sum(rows.values())):
            return _judge(engine, request, moment, reading, rows, clock=clock, progress=timed)
    except Exception as error:
        told = engine.error_of(error, "the audit")
        if told is error:
            raise
        raise told from error
    finally:
        engine.forget()


def _judge(
    engine: RunEngine,
    request: AuditRequest,
    moment: Moment,
    reading: readings.Reading,
    rows: dict[str, int],
    *,
    clock: Clock,
    progress: TimedProgress,
) -> Summary:
    clusters = _clusters(reading.tables)
    folder = request.parquet
    ledger = Ledger(engine.ledger_files(folder)) if folder is not None else None
    judged_at_ms = moment.run_at_ms if request.is_live else _newest_ms(reading.tables, moment)
    ended_ms = clock.now_ms() if request.is_live else 0
    limits = Limits(now_ms=judged_at_ms, ended_ms=ended_ms, **dict(request.limits))
    entry = RunEntry(
        run_id=moment.run_id,
        run_at_ms=moment.run_at_ms,
        schema_version=SCHEMA_VERSION,
        depth="deep" if request.is_deep else "snapshot",
        scope=_scope(request),
        clusters=clusters,
        findings=0,
    )
    with progress.stage("judge"):
        runs = _earlier_runs(reading, ledger, entry)
        checks = checks_for(is_deep=request.is_deep, has_stores=bool(request.stores))
        _make_shared(reading, limits, has_compared=request.is_deep and bool(request.stores))
        states = engine.keep_cut(progress_states(reading.tables, limits))
        findings = engine.keep_cut(
            linked_findings(
                _found(engine, _to_ask(checks, reading), reading.tables, limits),
                entry,
                comparable(runs, entry.scope),
                earlier_findings=reading.tables.earlier_findings,
                earlier_states=reading.tables.history,
                deep_checks=[one.name for one in checks if one.is_deep],
            )
        )
        with engine.sums():
            waiting = waiting_by_topic(reading.tables)
            has_read = request.is_live or (request.is_deep and bool(request.stores))
            failed = failed_by_group(reading.tables, states, knows_waiting=has_read)
            parts = collect_parts(findings, states, reading.tables.brokers, waiting, failed)
    summary = _summary(entry, parts, judged_at_ms, rows, progress, clock, engine.name)
    asked = {one.name for one in checks}
    summary = replace(
        summary,
        notes=(*reading.notes, *(engine.kept.notes() if engine.kept is not None else ())),
        not_asked=tuple(one.name for one in all_checks() if one.name not in asked),
    )
    earlier = comparable(runs, entry.scope)
    last = (earlier.deep_run if request.is_deep else None) or earlier.any_run
    summary = replace(summary, after=_after(request, summary, reading.tables, last))
    progress.note(_counts_line(summary))
    judged = Judged(
        entry=replace(entry, findings=summary.findings_total),
        tables=reading.tables,
        states=states.withColumns(
            {"run_id": F.lit(entry.run_id), "run_at_ms": F.lit(entry.run_at_ms)}
        ),
        findings=findings,
        summary=summary,
        runs=tuple(runs),
    )
    with engine.sums():
        return publish(request, judged, ledger, engine=engine, progress=progress)


def _after(
    request: AuditRequest, summary: Summary, tables: Tables, last: RunEntry | None
) -> After | None:
    """Compared with the run that the request names, or with `last`."""
    earlier = request.after
    if earlier is None and last is not None:
        found = tables.earlier_findings.where(F.col("run_id") == last.run_id)
        if summary.not_asked:
            found = found.where(~F.col("check").isin(list(summary.not_asked)))
        rows = found.limit(FINDINGS_MAX).collect()
        earlier = {"run_id": last.run_id, "run_at_ms": last.run_at_ms, "findings": rows}
    if earlier is None:
        return None
    return after(
        earlier,
        summary.findings,
        findings_total=summary.findings_total,
        not_asked=summary.not_asked,
        brokers=summary.brokers,
        groups=request.groups,
        topics=request.topics,
        is_asked=request.after is not None,
    )


def _make_shared(reading: readings.Reading, limits: Limits, *, has_compared: bool) -> None:
    """The tables that several checks use; each uses those before it."""
    keep = reading.engine.keep_cut
    tables = replace(reading.tables, replicas=find_replicas(reading.tables, limits))
    tables = replace(tables, changes=keep(find_changes(tables, limits)))
    tables = replace(tables, judged=keep(judge(tables, limits)))
    tables = replace(tables, moves=keep(find_moves(tables, limits)))
    if has_compared:
        tables = replace(tables, compared=keep(compare(tables, limits)))
    reading.tables = tables


def _earlier_runs(
    reading: readings.Reading, ledger: Ledger | None, entry: RunEntry
) -> list[RunEntry]:
    """The newest runs over the same clusters, whose rows become tables of the reading."""
    runs = ledger.newest_runs(entry.clusters, HISTORY_RUNS) if ledger is not None else []
    if ledger is not None and runs:
        reading.tables = replace(
            reading.tables,
            history=ledger.read("state", of_same_sources(runs, entry.scope)),
            earlier_findings=ledger.read("findings", runs),
        )
        reading.settle(("history", "earlier_findings"))
    return runs


def _to_ask(checks: Sequence[Check], reading: readings.Reading) -> list[Check]:
    """Checks that may find something, according to `needs`; one query over the tables for all of
    them."""
    tables: dict[str, set[str]] = {}
    for check in checks:
        for table, condition in check.needs.items():
            if table not in reading.empty and getattr(reading.tables, table) is not None:
                tables.setdefault(table, set()).add(condition)
    asked = [
        getattr(reading.tables, table).agg(
            F.lit(table).alias("table"),
            F.array(*(F.coalesce(F.expr(one), F.lit(False)) for one in sorted(conditions))).alias(
                "held"
            ),
        )
        for table, conditions in tables.items()
    ]
    held = {
        (row["table"], condition)
        for row in (union(asked).collect() if asked else ())
        for condition, holds in zip(sorted(tables[row["table"]]), row["held"], strict=True)
        if holds
    }
    return [one for one in checks if not one.needs or held & set(one.needs.items())]


def _found(engine: RunEngine, checks: Sequence[Check], tables: Tables, limits: Limits) -> Frame:
    """The findings of all checks, in one plan, so that Spark shares common parts."""
    each = [engine.frames.frame(FINDINGS, [])]
    for check in checks:
        try:
            found = check.run(tables, limits)
        except Exception as error:
            told = engine.error_of(error, f"check {check.name}")
            if told is error:
                raise
            raise told from error
        each.append(found)
    return union(each)


def _summary(
    entry: RunEntry,
    parts: dict[str, list[dict[str, Any]]],
    judged_at_ms: int,
    rows: dict[str, int],
    progress: TimedProgress,
    clock: Clock,
    engine_name: str,
) -> Summary:
    counts = {str(one): 0 for one in Severity}
    for row in parts["checks"]:
        counts[row["severity"]] += row["findings"]
    brokers = parts["brokers_total"][0]
    return Summary(
        run_id=entry.run_id,
        run_at_ms=entry.run_at_ms,
        judged_at_ms=judged_at_ms,
        took_ms=clock.now_ms() - entry.run_at_ms,
        depth=entry.depth,
        engine=engine_name,
        clusters=entry.clusters,
        version=importlib.metadata.version("aerobee"),
        counts=counts,
        checks=tuple(parts["checks"]),
        findings=tuple(parts["findings"]),
        states={row["state"]: row["queues"] for row in parts["states"]},
        groups=tuple(parts["groups"]),
        groups_total=parts["groups_total"][0]["pairs"],
        brokers=tuple(parts["brokers"]),
        brokers_total=brokers["asked"],
        brokers_answered=brokers["answered"] or 0,
        waiting=tuple(parts["waiting"]),
        waiting_total=parts["waiting_total"][0]["pairs"],
        failed=tuple(parts["failed"]),
        failed_total=parts["failed_total"][0]["groups"],
        stages_ms=dict(progress.stages_ms),
        rows=rows,
    )


def _clusters(tables: Tables) -> tuple[str, ...]:
    """Their names, shortened; "" if files do not say."""
    names = tables.brokers.select("cluster").unionByName(tables.registry_brokers.select("cluster"))
    found = names.select(F.coalesce("cluster", F.lit("")).alias("cluster")).distinct().collect()
    return tuple(sorted(row["cluster"] for row in found)) or ("",)


def _newest_ms(tables: Tables, moment: Moment) -> int:
    """Files at rest are judged as of the newest moment that they mention, not as of today. Times in
    the future are ignored, and so are those of records that a reader knows to be damaged: damaged
    bytes may contain anything."""
    damaged = F.broadcast(
        tables.faults.where(F.col("kind") == "BAD_TIME").select(
            *REPLICA, F.col("store_ms").alias("last_store_ms")
        )
    )
    stored = [
        table.join(damaged, [*REPLICA, "last_store_ms"], "left_anti")
        for table in (tables.queues, tables.log_ranges)
    ]
    moments = [
        table.where(F.col(name) <= moment.run_at_ms).agg(F.max(name).alias("at_ms"))
        for table, name in (
            *((table, "last_store_ms") for table in stored),
            (tables.commits, "committed_at_ms"),
        )
    ]
    newest = union(moments).agg("max(at_ms) at_ms").collect()
    at_ms = newest[0]["at_ms"]
    return moment.run_at_ms if at_ms is None else min(int(at_ms), moment.run_at_ms)


def _scope(request: AuditRequest) -> str:
    """Equal for runs over the same sources; contains no options, which may be secret."""
    return json.dumps(
        {
            "nameservers": request.nameservers,
            "brokers": request.brokers,
            "stores": [[one.path, one.broker_name, one.broker_id] for one in request.stores],
            "groups": request.groups,
            "topics": request.topics,
        },
        sort_keys=True,
    )


def _run_id(run_at_ms: int, chance: random.Random) -> str:
    """Sorts by time; two runs at one moment differ."""
    at = datetime.fromtimestamp(run_at_ms / 1_000, UTC)
    return f"{at:%Y%m%dT%H%M%S}.{run_at_ms % 1_000:03d}-{chance.getrandbits(32):08x}"


def _counts_line(summary: Summary) -> str:
    found = [f"{count} {severity}" for severity, count in summary.counts.items() if count]
    return "findings: " + (", ".join(reversed(found)) or "none")
