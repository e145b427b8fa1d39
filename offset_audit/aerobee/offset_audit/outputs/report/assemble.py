"""From the collected rows to `ReportData`: plain Python over bounded lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from aerobee.offset_audit.outputs.report.data import (
    STATES,
    Bounds,
    BrokerRow,
    CheckCount,
    Failed,
    FindingRow,
    GroupRow,
    HeatCell,
    HeatRow,
    LagPoint,
    PairRow,
    Progress,
    QueueRow,
    ReportData,
    RunFacts,
    TopicRow,
    Totals,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Made = TypeVar("Made", bound="DataclassInstance")
Row = Mapping[str, Any]
Rows = Mapping[str, Sequence[Row]]
Pair = tuple[str, str]


def chosen_pairs(first: Rows, bounds: Bounds) -> list[Pair]:
    """Groups and topics whose queues the page shows, those that need attention first."""
    return [(row["group"], row["topic"]) for row in first["pairs"]][: bounds.pairs]


def chosen_topics(first: Rows, bounds: Bounds) -> list[str]:
    """Topics that groups read, those that need attention first; then the largest of the others."""
    names = [row["topic"] for row in (*first["topics"], *first["largest"])]
    return list(dict.fromkeys(names))[: bounds.topics]


def assemble(run: RunFacts, first: Rows, second: Rows, bounds: Bounds) -> ReportData:
    """`first` and `second`: rows by part, from the two jobs."""
    chosen = chosen_pairs(first, bounds)
    queues: dict[Pair, list[Row]] = {pair: [] for pair in chosen}
    for row in second["queues"]:
        queues[chosen[row["place"]]].append(row)
    pairs = [
        PairRow(
            group=row["group"],
            topic=row["topic"],
            progress=_progress(row),
            queues=tuple(
                _shown(QueueRow, queue)
                for queue in sorted(
                    queues.get((row["group"], row["topic"]), ()), key=lambda one: one["in_pair"]
                )
            ),
        )
        for row in second["pairs"]
    ]
    pairs.sort(key=_attention)
    failed = {row["group"]: _made(Failed, row) for row in second["failed"]}
    return ReportData(
        run=run,
        totals=_totals(first),
        counts=tuple(_made(CheckCount, row) for row in first["counts"]),
        findings=tuple(_made(FindingRow, row) for row in _ordered(first["findings"])),
        brokers=tuple(_broker(row) for row in first["brokers"]),
        groups=tuple(
            _group(row, run, pairs, second["points"], failed.get(row["group"]), bounds)
            for row in first["groups"]
        ),
        topics=_topics(first, second, pairs, bounds),
        heat=_heat(chosen, second["cells"]),
        bounds=bounds,
    )


def _progress(row: Row) -> Progress:
    return Progress(
        queues=row.get("queues", 0),
        lag=row.get("lag"),
        matching_lag=row.get("matching_lag"),
        unknown=row.get("unknown", 0),
        first_unread_ms=row.get("first_unread_ms"),
        states={state: count for state in STATES if (count := row.get(f"queues_{state}", 0))},
    )


def _attention(pair: PairRow) -> tuple[int, int, str, str]:
    lag = -1 if pair.progress.lag is None else pair.progress.lag
    return STATES.index(pair.progress.worst_state), -lag, pair.group, pair.topic


def _totals(first: Rows) -> Totals:
    brokers, totals = first["broker_totals"][0], first["totals"][0]
    return Totals(
        brokers=brokers.get("brokers", 0),
        brokers_answered=brokers.get("answered", 0),
        groups=totals.get("groups", 0),
        topics=first["topic_total"][0].get("topics", 0),
        pairs=totals.get("pairs", 0),
        progress=_progress(totals),
    )


def _ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(
        rows, key=lambda row: (row["severity_rank"], -row.get("affected", -1), row["check"])
    )


def _made(kind: type[Made], row: Row, **more: Any) -> Made:
    """With a row's values and `more`; a text that it does not have is empty, anything else not
    known."""
    known = {one.name: "" if one.type == "str" else None for one in fields(kind)}
    return kind(**{name: more.get(name, row.get(name, known[name])) for name in known})


def _broker(row: Row) -> BrokerRow:
    in_sync = row.get("in_sync")
    return _made(
        BrokerRow,
        row,
        answered=row.get("answered", False),
        in_sync=None if in_sync is None else tuple(in_sync),
    )


def _shown(kind: type[Made], row: Row) -> Made:
    return _made(kind, row, state=row.get("state", "UNKNOWN"))


def _group(
    row: Row,
    run: RunFacts,
    pairs: Sequence[PairRow],
    points: Sequence[Row],
    failed: Failed | None,
    bounds: Bounds,
) -> GroupRow:
    mine = sorted((one for one in points if one["group"] == row["group"]), key=itemgetter("at_ms"))
    return GroupRow(
        group=row["group"],
        members=row.get("members"),
        topics=row["pairs"],
        progress=_progress(row),
        points=tuple(
            LagPoint(
                run_at_ms=one["at_ms"],
                lag=one.get("lag"),
                age_ms=0 if one.get("lag") == 0 else one.get("age_ms"),
            )
            for one in mine
            if one["at_ms"] <= run.run_at_ms
        ),
        pairs=tuple(pair for pair in pairs if pair.group == row["group"])[: bounds.pairs_each],
        failed=failed,
    )


def _topics(
    first: Rows, second: Rows, pairs: Sequence[PairRow], bounds: Bounds
) -> tuple[TopicRow, ...]:
    read = {row["topic"]: row for row in first["topics"]}
    stored = {row["topic"]: row for row in second["stored"]}
    waiting = {row["topic"]: row["messages"] for row in second["waiting"]}
    topics = []
    for name in chosen_topics(first, bounds):
        size = stored.get(name, {})
        row = read.get(name, {})
        progress = _progress(row)
        topics.append(
            TopicRow(
                topic=name,
                queues=size.get("queues"),
                messages=size.get("messages"),
                groups=row.get("pairs", 0),
                progress=progress,
                pairs=tuple(pair for pair in pairs if pair.topic == name)[: bounds.pairs_each],
                waiting=waiting.get(name, 0),
            )
        )
    return tuple(topics)


def _heat(chosen: Sequence[Pair], cells: Sequence[Row]) -> tuple[HeatRow, ...]:
    by_place: dict[int, list[Row]] = {}
    for cell in cells:
        by_place.setdefault(cell["place"], []).append(cell)
    return tuple(
        HeatRow(
            group=chosen[place][0],
            topic=chosen[place][1],
            queues=by_place[place][0]["row_queues"],
            cells=tuple(
                _shown(HeatCell, cell) for cell in sorted(by_place[place], key=itemgetter("cell"))
            ),
        )
        for place in sorted(by_place)
    )
