"""A report of a cluster in trouble, made by hand: each part of the page has something to show."""

from __future__ import annotations

import random

from aerobee.offset_audit.outputs.report.data import (
    BrokerRow,
    CheckCount,
    CheckFact,
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

NOW_MS = 1_795_000_000_000
MINUTE_MS = 60_000
GROUPS = {
    # name: (topics, unread in a queue, state, members)
    "billing": (("orders", "payments"), 48_000, "STUCK", 2),
    "search-index": (("orders",), 2_300, "SLOW", 4),
    "mailer": (("signups",), 900, "STOPPED", 0),
    "warehouse": (("orders", "stock-levels"), 140, "LAGGING", 3),
    "fraud-check": (("payments",), 0, "OK", 2),
    "audit-trail": (("orders", "payments", "signups"), 0, "OK", 1),
    "notifications": (("signups",), 3, "OK", 2),
    "reports-nightly": (("payments",), None, "UNKNOWN", None),
}
QUEUES = {"orders": 16, "payments": 8, "signups": 4, "stock-levels": 130}

FINDINGS = (
    FindingRow(
        check="OUT_OF_RANGE_LOW",
        severity="CRITICAL",
        broker_name="broker-a",
        broker_id=0,
        role="MASTER",
        epoch=7,
        topic="payments",
        queue_id=3,
        group="reports-nightly",
        evidence="The committed offset 1,204,551 is below the queue's minimum 1,238,020: retention "
        "removed 33,469 messages that the group had not read.",
        affected=33_469,
        command="aerobee offset reset reports-nightly payments --to first --dry-run",
        first_seen_ms=NOW_MS - 95 * MINUTE_MS,
        state="UNKNOWN",
        previous_state="SLOW",
    ),
    FindingRow(
        check="UNREACHABLE",
        severity="ERROR",
        broker_name="broker-c",
        broker_id=1,
        role="SLAVE",
        evidence="10.2.0.43:10911 did not answer within 5,000 ms: connection refused.",
        affected=None,
        command="aerobee cluster show",
    ),
    FindingRow(
        check="STUCK",
        severity="WARNING",
        broker_name="broker-a",
        broker_id=0,
        role="MASTER",
        epoch=7,
        topic="orders",
        queue_id=5,
        group="billing",
        evidence="4 queues are held by billing-7f9c@10.1.4.20 which last committed 41 min ago, "
        "while 192,000 messages wait; the member still sends heartbeats.",
        affected=192_000,
        command="aerobee group show billing",
        state="STUCK",
        previous_state="SLOW",
        first_seen_ms=NOW_MS - 41 * MINUTE_MS,
    ),
    FindingRow(
        check="STOPPED",
        severity="WARNING",
        topic="signups",
        group="mailer",
        evidence="No member for 3 h 20 min; 3,600 messages wait in 4 queues.",
        affected=3_600,
        command="aerobee group show mailer",
        state="STOPPED",
        previous_state="OK",
        first_seen_ms=NOW_MS - 200 * MINUTE_MS,
    ),
    FindingRow(
        check="RESET",
        severity="INFO",
        topic="stock-levels",
        group="warehouse",
        evidence="An operator moved 130 queues forward to the newest offset at 09:12 UTC.",
        affected=88_112,
        command="aerobee group show warehouse",
    ),
)

CHECKS = (
    CheckFact("LAG", "Does a group fall behind?", False, True),
    CheckFact("STUCK", "Does a queue stand still though a member holds it?", False, True),
    CheckFact("STOPPED", "Do messages wait for a group without members?", False, True),
    CheckFact("RESET", "Did somebody move offsets?", False, True),
    CheckFact("OUT_OF_RANGE_LOW", "Did retention overtake a group?", False, True),
    CheckFact("UNREACHABLE", "Did every broker answer?", False, True),
    CheckFact("GAP", "Is every queue offset there?", True, False),
    CheckFact("CORRUPT", "Does every record have its checksum?", True, False),
)


def progress(queues: int, lag: int | None, state: str) -> Progress:
    """`lag`: of each queue."""
    odd = 0 if state in ("OK", "UNKNOWN") else max(1, queues // 4)
    states = {state: odd or queues} if odd in (0, queues) else {state: odd, "OK": queues - odd}
    return Progress(
        queues=queues,
        lag=None if lag is None else lag * queues,
        matching_lag=lag * queues // 3 if lag and state == "SLOW" else None,
        unknown=queues if lag is None else 0,
        first_unread_ms=NOW_MS - 13 * MINUTE_MS - lag * 50 if lag else None,
        states=states,
    )


def queue(topic: str, place: int, lag: int | None, state: str) -> QueueRow:
    return QueueRow(
        broker_name="broker-a" if place % 2 else "broker-b",
        queue_id=place // 2,
        committed_offset=None if lag is None else 1_500_000 - lag,
        min_offset=1_000_000,
        max_offset=1_500_000,
        lag=lag,
        matching_lag=lag // 3 if lag and state == "SLOW" else None,
        first_unread_ms=NOW_MS - lag * 50 if lag else None,
        committed_at_ms=NOW_MS - 4_000 - (lag or 0) * 40,
        holder=f"{topic}-7f9c@10.1.4.{20 + place}",
        state=state,
        since_ms=None,
    )


def pair(group: str, topic: str) -> PairRow:
    _, lag, state, _ = GROUPS[group]
    count = QUEUES[topic]
    return PairRow(
        group,
        topic,
        progress(count, lag, state),
        tuple(
            queue(topic, place, lag, state if place < count // 4 else "OK")
            for place in range(min(count, 12))
        ),
    )


def heat_row(group: str, topic: str, chance: random.Random) -> HeatRow:
    _, lag, state, _ = GROUPS[group]
    count = QUEUES[topic]
    each = -(-count // 64)
    cells = []
    for number in range(-(-count // each)):
        mine = None if lag is None else int(lag * chance.random() ** 4 * 8)
        cells.append(
            HeatCell(
                broker_name=f"broker-{'abc'[number % 3]}",
                queue_id=number // 3,
                queues=each,
                lag=mine,
                first_unread_ms=NOW_MS - mine * 50 if mine else None,
                state=state if chance.random() < 0.25 or lag is None else "OK",
            )
        )
    return HeatRow(group, topic, count, tuple(cells))


def group_row(group: str, runs: int, chance: random.Random) -> GroupRow:
    """With an unread count for each run; of some it is not known."""
    topics, lag, state, members = GROUPS[group]
    queues = sum(QUEUES[topic] for topic in topics)
    walk = 0.3
    points = []
    for run in range(runs, -1, -1):
        walk = min(max(walk + chance.uniform(-0.1, 0.11), 0), 1.2)
        at_ms = NOW_MS - run * 5 * MINUTE_MS
        known = lag is not None and not (group == "search-index" and run in range(20, 26))
        unread = int((lag or 0) * queues * walk) if known else None
        points.append(LagPoint(at_ms, unread, unread * 9 if unread is not None else None))
    return GroupRow(
        group,
        members,
        len(topics),
        progress(queues, lag, state),
        tuple(points),
        tuple(pair(group, topic) for topic in topics),
    )


def sample(runs: int = 40) -> ReportData:
    """Always the same."""
    chance = random.Random(6)
    groups = tuple(group_row(group, runs, chance) for group in GROUPS)
    by_topic = {
        topic: [group for group, (topics, *_) in GROUPS.items() if topic in topics]
        for topic in QUEUES
    }
    pairs = [(group, topic) for group, (topics, *_) in GROUPS.items() for topic in topics]
    return ReportData(
        run=RunFacts(
            cluster="eu-north",
            run_id="2026-11-18T11:06:40Z-7c1e",
            run_at_ms=NOW_MS,
            judged_at_ms=NOW_MS,
            took_ms=4_230,
            depth="snapshot",
            sources=("ns-1.example.net:8081", "ns-2.example.net:8081"),
            version="0.1.0",
            checks=CHECKS,
        ),
        totals=Totals(
            brokers=6,
            brokers_answered=5,
            groups=len(GROUPS),
            topics=len(QUEUES),
            pairs=len(pairs),
            progress=Progress(
                queues=254,
                lag=1_213_640,
                matching_lag=None,
                unknown=8,
                first_unread_ms=NOW_MS - 53 * MINUTE_MS,
                states={
                    "OK": 180,
                    "LAGGING": 36,
                    "SLOW": 16,
                    "STUCK": 10,
                    "STOPPED": 4,
                    "UNKNOWN": 8,
                },
            ),
        ),
        counts=tuple(CheckCount(one.check, one.severity, 1) for one in FINDINGS),
        findings=FINDINGS,
        brokers=tuple(broker(name, number) for name in "cab" for number in (1, 0)),
        groups=groups,
        topics=tuple(
            TopicRow(
                topic,
                count,
                count * 500_000,
                len(by_topic[topic]),
                progress(count, 140, "LAGGING"),
                tuple(pair(group, topic) for group in by_topic[topic]),
            )
            for topic, count in QUEUES.items()
        ),
        heat=tuple(heat_row(group, topic, chance) for group, topic in pairs),
    )


def broker(letter: str, number: int) -> BrokerRow:
    answered = (letter, number) != ("c", 1)
    return BrokerRow(
        broker_name=f"broker-{letter}",
        broker_id=number,
        role=("SLAVE" if number else "MASTER") if answered else "",
        answered=answered,
        error="" if answered else "connection refused",
        address=f"10.2.0.{ord(letter) - 66 + number * 10}:10911",
        epoch=7 if answered else None,
        version="0.1.0" if answered else "",
        log_min_offset=0 if answered else None,
        appended_end=734_003_200 + number if answered else None,
        confirmed_end=734_003_200 if answered else None,
        in_sync=(0, 1) if answered else None,
        replication_mode="SYNC_MASTER",
        flush_mode="ASYNC",
    )
