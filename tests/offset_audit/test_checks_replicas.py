"""Replicas against each other and against the registry: what is found, what nearly, what unknown.

Each broker group is one situation, so that every check runs once over all of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.replicas import CHECKS
from aerobee.offset_audit.doctor.examining import CHECKED, examined
from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.frame import Engine
from aerobee.offset_audit.rules.names import BUSY
from aerobee.offset_audit.run.identities import until_answered
from aerobee.offset_audit.tables import COLUMNS, FINDINGS
from tests.offset_audit.table_builders import NOW_MS, TableRows

pytestmark = pytest.mark.slow

LIMITS = Limits(now_ms=NOW_MS)
END = 1_000_000_000
MIB = 1024 * 1024

Found = dict[tuple[str, int | None], dict[str, Any]]
"""Findings by broker name and id."""


def found(engine: Engine, name: str, rows: TableRows) -> Found:
    """What one check finds, each place once."""
    check = next(one for one in CHECKS if one.name == name)
    frame = check.run(rows.tables(engine), LIMITS)
    assert frame.columns == names_of(FINDINGS)
    findings: Found = {}
    for row in frame.collect():
        assert (row["check"], row["run_id"], row["evidence"] is None) == (name, None, False)
        place = row["broker_name"], row["broker_id"]
        assert place not in findings, "one cause, one finding"
        findings[place] = row
    return findings


def test_the_doctor_says_what_an_audit_says_of_the_same_brokers(engine: Engine) -> None:
    rows = rows_of_contradictions()
    for add in (add_zones, add_elections, add_clocks, add_gaps, add_refusals):
        add(rows)
    every = examined({name: rows.rows(name) for name in COLUMNS}, LIMITS)
    names = {check.name for check in CHECKS if check.name in CHECKED}
    for name in names:
        by_audit = found(engine, name, rows).values()
        assert by_audit
        by_doctor = [one for one in every if one["check"] == name]
        assert sorted(by_doctor, key=str) == sorted(by_audit, key=str)


def pair(rows: TableRows, name: str, master: dict[str, Any], slave: dict[str, Any]) -> None:
    """A group of a master 0 and a slave 1."""
    common = {"broker_name": name, "appended_end": END, "confirmed_end": END, "in_sync": [0]}
    rows.add("brokers", **{**common, "in_sync": [0, 1], **master})
    rows.add("brokers", **{**common, "broker_id": 1, "role": "SLAVE", **slave})


def test_a_replica_is_late_only_if_it_is_far_behind_and_not_in_sync(engine: Engine) -> None:
    rows = TableRows()
    far = END - 65 * MIB
    pair(rows, "late", {"in_sync": [0]}, {"appended_end": far})
    rows.add("queues", broker_name="late", max_offset=500)
    rows.add("queues", broker_name="late", max_offset=100, queue_id=1)
    rows.add("queues", broker_name="late", broker_id=1, max_offset=380)
    pair(rows, "in-sync", {}, {"appended_end": far})
    pair(rows, "near", {"in_sync": [0]}, {"appended_end": END - 63 * MIB})
    pair(rows, "old", {"in_sync": [0]}, {"appended_end": END - 10})
    rows.add("queues", broker_name="old", last_store_ms=NOW_MS - 11_000)
    rows.add("queues", broker_name="old", broker_id=1, last_store_ms=NOW_MS - 72_000)
    pair(rows, "just-spoke", {"in_sync": [0]}, {"appended_end": END - 10})
    pair(rows, "busy", {"in_sync": [0]}, {"appended_end": END - 10})
    for name in ("just-spoke", "busy"):
        rows.add("queues", broker_name=name, last_store_ms=NOW_MS)
        rows.add("queues", broker_name=name, broker_id=1, last_store_ms=NOW_MS - 900_000)
    rows.add(
        "minutes",
        broker_name="busy",
        tier="ACKNOWLEDGED",
        topic="t",
        minute=NOW_MS // 60_000 - 2,
        messages=1,
    )
    pair(rows, "young", {"in_sync": [0]}, {"appended_end": END - 10})
    rows.add("queues", broker_name="young", last_store_ms=NOW_MS)
    rows.add("queues", broker_name="young", broker_id=1, last_store_ms=NOW_MS - 59_000)
    pair(rows, "unknown", {"in_sync": None}, {"appended_end": None})
    pair(rows, "deaf", {"in_sync": None}, {"appended_end": 0, "answered": False})
    pair(rows, "at-rest", {"role": "STORE", "in_sync": None}, {"role": "STORE", "in_sync": None})
    pair(rows, "stale", {"role": "STORE"}, {"role": "STORE", "appended_end": far})
    for name, committed_at_ms in (("forgetful", NOW_MS - 60_000), ("fresh", NOW_MS - 12_000)):
        pair(rows, name, {}, {})
        rows.add("commits", broker_name=name, group="g", offset=90, committed_at_ms=committed_at_ms)
        rows.add("commits", broker_name=name, group="g", offset=40, broker_id=1)
    pair(rows, "silent", {}, {})
    rows.add("commits", broker_name="silent", group="g", offset=9, committed_at_ms=1)
    findings = found(engine, "REPLICA_PROGRESS", rows)
    assert findings.keys() == {
        ("late", 1),
        ("old", 1),
        ("busy", 1),
        ("stale", 1),
        ("forgetful", 1),
    }
    assert {one["severity"] for one in findings.values()} == {"WARNING"}
    late = findings["late", 1]
    assert (late["affected"], late["role"]) == (220, "SLAVE")
    assert f"{65 * MIB} bytes before late:0's" in late["evidence"]
    assert findings["forgetful", 1]["affected"] == 1
    assert "group g on t, queue 0: 40 here, 90 there" in findings["forgetful", 1]["evidence"]


def add_gaps(rows: TableRows) -> None:
    for broker_id, role, misplaced in ((0, "MASTER", 0), (1, "SLAVE", 2), (2, "STORE", None)):
        rows.add(
            "brokers",
            broker_name="broker-a",
            broker_id=broker_id,
            role=role,
            misplaced_records=misplaced,
        )


def test_a_broker_that_met_records_out_of_place_is_found(engine: Engine) -> None:
    rows = TableRows()
    add_gaps(rows)
    findings = found(engine, "REPLICA_GAP", rows)
    assert findings.keys() == {("broker-a", 1)}
    finding = findings["broker-a", 1]
    assert (finding["severity"], finding["affected"]) == ("ERROR", 2)
    assert finding["evidence"].startswith("broker-a:1 met 2 records that do not continue")


def add_refusals(rows: TableRows) -> None:
    for broker_id, role, reason in (
        (0, "MASTER", ""),
        (1, "SLAVE", "broker-b:1 is a slave"),
        (2, "STORE", None),
        (3, "MASTER", "the store is disk full: free space"),
        (
            4,
            "MASTER",
            "this replica has handed its broker group over; ask the route again for the master",
        ),
    ):
        rows.add(
            "brokers",
            broker_name="broker-w",
            broker_id=broker_id,
            role=role,
            not_writable_reason=reason,
        )


def test_a_master_that_takes_no_messages_is_an_error(engine: Engine) -> None:
    rows = TableRows()
    add_refusals(rows)
    findings = found(engine, "NOT_WRITABLE", rows)
    assert findings.keys() == {("broker-w", 3), ("broker-w", 4)}
    assert findings["broker-w", 4]["severity"] == "INFO", "a change of master passes"
    finding = findings["broker-w", 3]
    assert (finding["severity"], finding["affected"]) == ("ERROR", None)
    assert finding["evidence"] == (
        "broker-w:3 takes no messages: the store is disk full: free space."
    )


def test_replicas_with_different_bytes_are_found_unless_damage_explains_it(
    engine: Engine,
) -> None:
    rows = TableRows()

    def copies(name: str, *checksums: int | None, role: str = "STORE", **values: Any) -> None:
        for broker_id, checksum in enumerate(checksums):
            rows.add("brokers", broker_name=name, broker_id=broker_id, role=role)
            for begin, crc in ((0, 7), (64, checksum)):
                row = {"begin": begin, "end": begin + 64, "checksum": crc, "records": 3, **values}
                row = {"store": f"/{name}/{broker_id}", **row}
                rows.add("log_ranges", broker_name=name, broker_id=broker_id, **row)

    copies("same", 1, 1)
    copies("differs", 1, 2)
    copies("outvoted", 2, 1, 1)
    copies("not-whole", 1, None)
    copies("live", 1, 2, 2, store=None)
    rows.add("brokers", broker_name="live", broker_id=2, epoch=9)
    copies("damaged", 1, 2)
    rows.add(
        "faults",
        broker_name="damaged",
        store="/damaged/1",
        kind="BAD_CRC",
        position=70,
        file="commitlog/0",
    )
    copies("damaged-elsewhere", 1, 2)
    rows.add(
        "faults",
        broker_name="damaged-elsewhere",
        store="/damaged-elsewhere/1",
        kind="BAD_CRC",
        position=60,
        file="commitlog/0",
    )
    for name, kind in (("set-back", "TIME_BACKWARD"), ("wrong-time", "BAD_TIME")):
        copies(name, 1, 2)
        place = {"broker_name": name, "store": f"/{name}/1", "file": "commitlog/0"}
        rows.add("faults", **place, kind=kind, position=70, store_ms=1, back_ms=1 << 62)
        copies(f"{name}-before", 1, 2)
        place |= {"broker_name": f"{name}-before", "store": f"/{name}-before/1"}
        rows.add("faults", **place, kind=kind, position=5, store_ms=1, back_ms=1 << 62)
    findings = found(engine, "REPLICA_DATA", rows)
    assert findings.keys() == {
        ("set-back", 1),
        ("set-back-before", 1),
        ("wrong-time-before", 1),
        ("differs", 1),
        ("outvoted", 0),
        ("live", 0),
        ("damaged-elsewhere", 1),
    }
    assert {one["severity"] for one in findings.values()} == {"CRITICAL"}
    differs = findings["differs", 1]
    assert differs["affected"] == 1
    assert "from byte 64 to 128: CRC-32 00000002 here (/differs/1), 00000001" in differs["evidence"]
    assert differs["command"] == "aerobee store verify /differs/1"


@pytest.mark.thorough
def test_epoch_tables_must_say_the_same_of_what_both_logs_hold(engine: Engine) -> None:
    rows = TableRows()

    def tables(name: str, *of_replicas: list[tuple[int, int]], registry: int = 9) -> None:
        pair(rows, name, {"epoch": 5}, {"epoch": 5})
        rows.add("registry_groups", broker_name=name, epoch=registry)
        for broker_id, epochs in enumerate(of_replicas):
            for epoch, start in epochs:
                rows.add(
                    "epochs", broker_name=name, broker_id=broker_id, epoch=epoch, start_offset=start
                )

    whole = [(1, 0), (3, 100), (5, 200)]
    tables("same", whole, whole)
    tables("trimmed", whole, [(3, 100), (5, 200)])
    tables("not-heard-yet", whole, [(1, 0), (3, 100)])
    tables("none", whole, [])
    tables("moved", whole, [(1, 0), (3, 90), (5, 200)])
    tables("left-out", whole, [(1, 0), (5, 200)])
    tables("empty-left-out", [(1, 0), (3, 200), (5, 200)], [(1, 0), (5, 200)])
    tables("invented", whole, [(1, 0), (2, 50), (3, 100), (5, 200)])
    tables("backward", [(1, 0), (3, 300), (5, 200)], [])
    tables("never-given", whole, whole, registry=4)
    tables("unregistered", [(1, 0), (8, 9)], [(1, 0), (8, 9)], registry=6)
    findings = found(engine, "REPLICA_EPOCH", rows)
    assert findings.keys() == {
        ("moved", 1),
        ("left-out", 1),
        ("invented", 1),
        ("backward", 0),
        ("unregistered", 0),
        ("unregistered", 1),
    }, "an epoch that the broker itself says is ROUTE's"
    assert {one["severity"] for one in findings.values()} == {"ERROR"}
    assert (
        "epoch 3 begins at byte 90; for moved:0 it begins at byte 100"
        in (findings["moved", 1]["evidence"])
    )


def rows_of_contradictions() -> TableRows:
    """Groups whose brokers and registry say different things, each named by what that is."""
    rows = TableRows()

    def registered(name: str, **values: Any) -> None:
        rows.add("registry_groups", broker_name=name, **{"replicas": [0, 1], **values})

    pair(rows, "fine", {}, {})
    registered("fine")
    rows.add("topics", broker_name="fine", topic="t")
    rows.add("registry_topics", broker_name="fine", topic="t")
    pair(rows, "two", {}, {"role": "MASTER", "epoch": 2})
    registered("two", epoch=2, master_id=1)
    pair(rows, "handed-over", {}, {"role": "MASTER", "epoch": 2})
    registered("handed-over", epoch=1)
    pair(rows, "asked-later", {"asked_at_ms": NOW_MS + 9}, {"role": "MASTER", "epoch": 2})
    registered("asked-later", epoch=1)
    pair(rows, "one-epoch", {}, {"role": "MASTER"})
    for incarnation in ("first", "second"):
        rows.add("brokers", broker_name="one-id", incarnation=incarnation)
    for address in ("a:1", "b:1"):
        rows.add("brokers", broker_name="two-addresses", incarnation="same", address=address)
    pair(rows, "epoch", {"epoch": 3}, {"epoch": 3})
    registered("epoch", epoch=4)
    pair(rows, "changed", {"epoch": 5}, {"epoch": 5})
    registered("changed", epoch=4)
    pair(rows, "moved", {"role": "SLAVE", "epoch": 5}, {"role": "MASTER", "epoch": 5})
    registered("moved", epoch=4)
    pair(rows, "between", {"role": "SLAVE", "epoch": 5}, {"epoch": 4})
    registered("between", epoch=4)
    pair(rows, "deleting", {}, {})
    registered("deleting")
    rows.add("topics", broker_name="deleting", topic="other")
    rows.add("registry_topics", broker_name="deleting", topic="deleted-since")
    rows.add("queues", broker_name="deleting", topic="deleted-since", min_offset=7, max_offset=7)
    pair(rows, "headless", {"role": "SLAVE"}, {})
    registered("headless")
    pair(rows, "half-heard", {"role": "SLAVE"}, {"answered": False, "role": None})
    registered("half-heard")
    pair(rows, "unregistered-epoch", {"epoch": None}, {})
    registered("unregistered-epoch")
    pair(rows, "poor", {}, {})
    registered("poor")
    rows.add("topics", broker_name="poor", topic="other")
    rows.add("registry_topics", broker_name="poor", topic="other")
    rows.add("registry_topics", broker_name="poor", topic="lacking", write_queue_count=4)
    pair(rows, "told-soon", {}, {})
    registered("told-soon")
    rows.add("topics", broker_name="told-soon", topic="other", revision=8)
    for topic, revision in (("other", 8), ("new", 9)):
        rows.add("registry_topics", broker_name="told-soon", topic=topic, topic_revision=revision)
    pair(rows, "topics-not-read", {}, {})
    rows.add("registry_topics", broker_name="topics-not-read", topic="t")
    rows.add("registry_topics", broker_name="nobody", topic="t", write_queue_count=4)
    rows.add("registry_topics", broker_name="nobody", topic="u", write_queue_count=4)
    return rows


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


def test_routes_contradict_brokers(engine: Engine) -> None:
    findings = found(engine, "ROUTE", rows_of_contradictions())
    severities = {place[0]: one["severity"] for place, one in findings.items()}
    assert severities == {
        "two": "CRITICAL",
        "handed-over": "INFO",
        "asked-later": "CRITICAL",
        "one-epoch": "CRITICAL",
        "one-id": "CRITICAL",
        "epoch": "ERROR",
        "changed": "INFO",
        "moved": "INFO",
        "between": "INFO",
        "headless": "ERROR",
        "poor": "ERROR",
        "told-soon": "INFO",
        "nobody": "ERROR",
    }
    assert findings["poor", 0]["topic"] == "lacking"
    assert findings["nobody", None]["affected"] == 2
    assert (
        "2 replicas of the broker group each say that they are its master"
        in (findings["two", None]["evidence"])
    )


def test_each_broker_that_does_not_answer_is_one_finding(engine: Engine) -> None:
    rows = TableRows()
    pair(rows, "slave-lost", {}, {"answered": False, "role": None, "error": "refused"})
    pair(rows, "master-lost", {"answered": False, "role": None, "error": "timeout"}, {})
    rows.add("registry_topics", broker_name="master-lost", topic="t", write_queue_count=8)
    rows.add("registry_topics", broker_name="slave-lost", topic="t", write_queue_count=8)
    for name in ("slave-lost", "master-lost"):
        rows.add("registry_groups", broker_name=name, replicas=[0, 1])
        for broker_id in (0, 1):
            rows.add("registry_brokers", broker_name=name, broker_id=broker_id)
    pair(rows, "busy", {}, {"answered": False, "role": None, "error": f"{BUSY}4 are read"})
    rows.add("brokers", broker_name="expired")
    rows.add("registry_brokers", broker_name="expired")
    rows.add("registry_groups", broker_name="expired", replicas=[0, 2])
    rows.add(
        "brokers",
        broker_name=None,
        broker_id=None,
        role=None,
        answered=False,
        address="h:1",
        error="refused",
    )
    rows.add("brokers", broker_name="files", role="STORE")
    rows.add("registry_groups", broker_name="at-rest", replicas=[])
    findings = found(engine, "UNREACHABLE", rows)
    assert findings.keys() == {
        ("slave-lost", 1),
        ("master-lost", 0),
        ("busy", 1),
        ("expired", 2),
        (None, None),
    }
    busy = findings.pop(("busy", 1))
    assert busy["severity"] == "WARNING"
    assert "is busy with other audits: 4 are read" in busy["evidence"]
    assert {one["severity"] for one in findings.values()} == {"ERROR"}
    assert findings["slave-lost", 1]["affected"] == 0
    lost = findings["master-lost", 0]
    assert lost["affected"] == 8
    assert "did not answer: timeout" in lost["evidence"]
    assert "8 queues of 1 topic is not known" in lost["evidence"]


def add_zones(rows: TableRows) -> None:
    for name, zones, in_sync in (
        ("together", ("a", "a", "b"), [0, 1]),
        ("apart", ("a", "b", "c"), [0, 1]),
        ("alone", ("a", "b"), [0]),
        ("unknown", ("a", None), [0, 1]),
        ("away", ("a",), [0, 1]),
    ):
        rows.add("registry_groups", broker_name=name, in_sync=in_sync, replicas=[0, 1, 2])
        for broker_id, zone in enumerate(zones):
            role = "SLAVE" if broker_id else "MASTER"
            rows.add(
                "registry_brokers", broker_name=name, broker_id=broker_id, role=role, zone=zone
            )


def test_what_one_of_several_zones_would_take_with_it_is_told(engine: Engine) -> None:
    rows = TableRows()
    add_zones(rows)
    findings = found(engine, "ONE_ZONE", rows)
    assert {name: one["severity"] for (name, _), one in findings.items()} == {
        "together": "WARNING",
        None: "INFO",
    }
    assert findings["together", None]["affected"] == 2
    assert (
        "All 2 replicas of together that are in sync are in zone a"
        in (findings["together", None]["evidence"])
    )
    (of_masters,) = (one for (name, _), one in findings.items() if name is None)
    assert "The masters of all 5 broker groups are in zone a" in of_masters["evidence"]
    # A master in another zone, or of none that is known.
    rows.add("registry_brokers", broker_name="other", broker_id=0, role="MASTER", zone="b")
    assert {name for name, _ in found(engine, "ONE_ZONE", rows)} == {"together"}


@pytest.mark.parametrize("zone", [None, "a"])
def test_a_cluster_of_one_zone_or_of_none_that_is_known_is_not_judged(
    engine: Engine, zone: str | None
) -> None:
    rows = TableRows()
    for name in ("one", "two"):
        rows.add("registry_groups", broker_name=name, in_sync=[0, 1], replicas=[0, 1])
        for broker_id in (0, 1):
            role = "SLAVE" if broker_id else "MASTER"
            rows.add(
                "registry_brokers", broker_name=name, broker_id=broker_id, role=role, zone=zone
            )
    assert found(engine, "ONE_ZONE", rows) == {}


def add_elections(rows: TableRows) -> None:
    rows.add("registry_groups", broker_name="clean", epoch=3, unclean_epochs=[])
    for name, begin in (("recent", 0), ("past", 5_000)):
        rows.add("registry_groups", broker_name=name, epoch=7, unclean_epochs=[4, 6])
        rows.add("brokers", broker_name=name, epoch=7, log_min_offset=begin)
        for epoch, start in ((3, 0), (4, 2_000), (6, 4_711), (7, 6_000)):
            rows.add("epochs", broker_name=name, epoch=epoch, start_offset=start)
    rows.add("registry_groups", broker_name="silent", epoch=2, unclean_epochs=[2])


def test_unclean_elections_are_told_until_retention_has_passed_them(engine: Engine) -> None:
    rows = TableRows()
    add_elections(rows)
    findings = found(engine, "UNCLEAN_ELECTION", rows)
    assert {name: one["severity"] for (name, _), one in findings.items()} == {
        "recent": "ERROR",
        "past": "INFO",
        "silent": "ERROR",
    }
    evidence = findings["recent", None]["evidence"]
    assert evidence == (
        "Unclean elections began epochs 4, 6 of recent: a replica that may lack acknowledged"
        " messages became master; the last one at byte 4711 of the log."
    )
    assert "retention has removed" in findings["past", None]["evidence"]


def add_clocks(rows: TableRows) -> None:
    def reading(name: str, stamp_ms: int | None, **values: Any) -> None:
        rows.add(
            "brokers",
            broker_name=name,
            commits_read_at_ms=stamp_ms,
            ends_read_at_ms=stamp_ms,
            **values,
        )

    reading("right", NOW_MS)
    reading("slow-answer", NOW_MS + 40_000, answered_at_ms=NOW_MS + 50_000)
    reading("ahead", NOW_MS + 3_600_000)
    reading("behind", NOW_MS - 60_000)
    reading("a-little", NOW_MS + 4_900)
    reading("unknown", None)
    reading("silent", NOW_MS - 60_000, answered=False)
    reading("at-rest", NOW_MS - 60_000, role="STORE")


@pytest.mark.thorough
def test_a_clock_is_judged_by_bounds_and_by_what_it_stamped(engine: Engine) -> None:
    rows = TableRows()
    add_clocks(rows)
    flipped = {"broker_name": "flipped", "store": "/f"}
    rows.add("log_ranges", **flipped, begin=0, end=9, first_store_ms=1, last_store_ms=(1 << 63) - 1)
    rows.add("log_ranges", **flipped, begin=9, end=18, first_store_ms=-9, last_store_ms=9_000)
    rows.add("log_ranges", **flipped, begin=18, end=27, first_store_ms=9_000, last_store_ms=9_000)
    for broker_id in (0, 1):
        place = {"broker_name": "stepped", "broker_id": broker_id, "store": f"/s/{broker_id}"}
        rows.add("faults", **place, kind="TIME_BACKWARD", position=4_711, back_ms=90_000)
        rows.add("log_ranges", **place, begin=0, end=9, first_store_ms=1, last_store_ms=99_000)
        rows.add("log_ranges", **place, begin=9, end=18, first_store_ms=9_000, last_store_ms=9_000)
    # A record with a damaged time bends the bounds of its range, and that is CORRUPT's.
    bent = {"broker_name": "bent", "store": "/b"}
    rows.add("faults", **bent, kind="BAD_TIME", position=5, store_ms=1 << 62, back_ms=1 << 62)
    rows.add("log_ranges", **bent, begin=0, end=9, first_store_ms=1, last_store_ms=1 << 62)
    rows.add("log_ranges", **bent, begin=9, end=18, first_store_ms=9_000, last_store_ms=9_000)
    rows.add("faults", broker_name="jitter", kind="TIME_BACKWARD", position=1, back_ms=4_000)
    for name, second_ms in (("segments", NOW_MS - 10_000), ("sound-segments", NOW_MS)):
        rows.add("segments", broker_name=name, position=0, first_store_ms=NOW_MS)
        rows.add("segments", broker_name=name, position=99, first_store_ms=second_ms)
        rows.add("segments", broker_name=name, position=199, first_store_ms=None)
    minute = NOW_MS // 60_000
    for name, ahead in (("future", 2), ("present", 0)):
        rows.add(
            "minutes", broker_name=name, tier="STORED", topic="t", minute=minute + ahead, messages=1
        )
    findings = found(engine, "CLOCK", rows)
    assert findings.keys() == {
        ("ahead", 0),
        ("behind", 0),
        ("stepped", 0),
        ("flipped", 0),
        ("segments", 0),
        ("future", 0),
    }
    assert {one["severity"] for one in findings.values()} == {"WARNING"}
    assert findings["ahead", 0]["affected"] == 3_600_000 - 5
    assert "is at least 59995 ms behind" in findings["behind", 0]["evidence"]
    assert f"{(1 << 63) - 1} ms" in findings["flipped", 0]["evidence"]
    assert findings["stepped", 0]["affected"] == 1
    assert "by up to 90000 ms: the record at byte 4711" in findings["stepped", 0]["evidence"]
