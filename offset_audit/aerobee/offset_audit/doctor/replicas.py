"""CLOCK, ONE_ZONE, REPLICA_GAP and UNCLEAN_ELECTION without Spark, as far as one reading shows: a
clock that was once set back shows only in stored bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from aerobee.offset_audit.doctor.judging import BROKER, REPLICA, Row, Tables, part_of
from aerobee.offset_audit.doctor.telling import finding
from aerobee.offset_audit.rules import clock, not_writable, one_zone, replica_gap, unclean_election
from aerobee.offset_audit.rules.expressions import read
from aerobee.offset_audit.rules.limits import Limits
from aerobee.offset_audit.rules.rule import numbers_of


def wrong_clocks(tables: Tables, limits: Limits) -> list[Row]:
    """One finding for each broker whose clock is wrong now."""
    judged: dict[tuple[Any, ...], Row] = {}
    for given in tables["brokers"]:
        if not given["answered"] or given["role"] in (None, "STORE"):
            continue
        row = dict(given)
        row["behind_ms"], row["ahead_ms"] = read(clock.BEHIND)(row), read(clock.AHEAD)(row)
        row["off_ms"] = read(clock.OFF)(row)
        if row["off_ms"] is not None:
            worst = judged.setdefault(part_of(row, REPLICA), row)
            if abs(row["off_ms"]) > abs(worst["off_ms"]):
                judged[part_of(row, REPLICA)] = row
    is_wrong = read(clock.IS_WRONG.format(**numbers_of(limits)))
    wrong = [row for row in judged.values() if is_wrong(row)]
    return [
        finding(
            row | {"brokers": len(judged), "wrong": len(wrong)},
            check=clock.NAME,
            severity="'WARNING'",
            evidence=clock.EVIDENCE,
            affected=clock.SIZE,
            command=clock.COMMAND,
        )
        for row in wrong
    ]


def shared_zones(tables: Tables, _: Limits) -> list[Row]:
    """One finding for each group whose in-sync replicas share a zone, and one if all masters do."""
    found: list[Row] = []
    brokers = list(tables.get("registry_brokers", ()))
    for cluster in {row["cluster"] for row in brokers}:
        own = [row for row in brokers if row["cluster"] == cluster]
        if _zones(own)["zones"] >= one_zone.SEVERAL:
            found += _in_sync(cluster, own, tables)
            found += _masters(cluster, own)
    return found


def _in_sync(cluster: str, brokers: list[Row], tables: Tables) -> Iterator[Row]:
    by_place = {(row["broker_name"], row["broker_id"]): row for row in brokers}
    for group in tables.get("registry_groups", ()):
        in_sync = group["in_sync"] or ()
        if group["cluster"] != cluster or len(in_sync) < one_zone.SEVERAL:
            continue
        members = [by_place.get((group["broker_name"], each), {"zone": None}) for each in in_sync]
        row = {**_zones(members), "cluster": cluster, "broker_name": group["broker_name"]}
        row["replicas"] = len(members)
        if read(one_zone.IN_SYNC_HOLDS)(row):
            yield finding(
                row,
                check=one_zone.NAME,
                severity="'WARNING'",
                evidence=one_zone.IN_SYNC_EVIDENCE,
                affected="replicas",
                command=one_zone.COMMAND,
            )


def _masters(cluster: str, brokers: list[Row]) -> Iterator[Row]:
    masters = [row for row in brokers if row["role"] == "MASTER"]
    row = {**_zones(masters), "cluster": cluster, "masters": len(masters)}
    if read(one_zone.MASTERS_HOLD)(row):
        yield finding(
            row,
            check=one_zone.NAME,
            severity="'INFO'",
            evidence=one_zone.MASTERS_EVIDENCE,
            affected="masters",
            command=one_zone.COMMAND,
        )


def _zones(brokers: Iterable[Row]) -> Row:
    known = [row["zone"] for row in brokers if row["zone"] is not None]
    return {"known": len(known), "zones": len(set(known)), "zone": max(known, default=None)}


def refusing(tables: Tables, _: Limits) -> list[Row]:
    """One finding for each master that takes no messages."""
    reasons: dict[tuple[Any, ...], str] = {}
    for row in tables["brokers"]:
        if read(not_writable.HOLDS)(row):
            place = part_of(row, REPLICA)
            reasons[place] = max(reasons.get(place, ""), row["not_writable_reason"])
    return [
        finding(
            {**dict(zip(REPLICA, place, strict=True)), "not_writable_reason": reason},
            check=not_writable.NAME,
            severity=not_writable.SEVERITY,
            evidence=not_writable.EVIDENCE,
            affected="null",
            command=not_writable.COMMAND,
        )
        for place, reason in reasons.items()
    ]


def gaps(tables: Tables, _: Limits) -> list[Row]:
    """One finding for each broker that met records that do not continue their queues."""
    misplaced: dict[tuple[Any, ...], int] = {}
    for row in tables["brokers"]:
        if row["answered"] and (row["misplaced_records"] or 0) > 0:
            place = part_of(row, REPLICA)
            misplaced[place] = max(misplaced.get(place, 0), row["misplaced_records"])
    return [
        finding(
            {**dict(zip(REPLICA, place, strict=True)), "misplaced": records},
            check=replica_gap.NAME,
            severity="'ERROR'",
            evidence=replica_gap.EVIDENCE,
            affected="misplaced",
            command=replica_gap.COMMAND,
        )
        for place, records in misplaced.items()
    ]


def unclean_elections(tables: Tables, _: Limits) -> list[Row]:
    """One finding for each group, INFO once its logs begin after all such epochs did."""
    starts: dict[tuple[Any, ...], int] = {}
    for row in tables.get("epochs", ()):
        place = part_of(row, ("broker_name", "epoch"))
        starts[place] = max(starts.get(place, row["start_offset"]), row["start_offset"])
    begins: dict[str, int] = {}
    for row in tables["brokers"]:
        if row["answered"] and row["log_min_offset"] is not None:
            name, begin = row["broker_name"], row["log_min_offset"]
            begins[name] = min(begins.get(name, begin), begin)
    found = []
    for group in tables.get("registry_groups", ()):
        name, epochs = group["broker_name"], sorted(set(group["unclean_epochs"] or ()))
        if not epochs:
            continue
        places = [
            {"start": starts.get((name, epoch)), "log_begin": begins.get(name)} for epoch in epochs
        ]
        row = {
            **dict(zip(BROKER, part_of(group, BROKER), strict=True)),
            "elections": len(epochs),
            "epochs": ", ".join(map(str, epochs)),
            "epoch": epochs[-1],
            "start": places[-1]["start"],
            "is_past": all(map(read(unclean_election.IS_PAST), places)),
        }
        found.append(
            finding(
                row,
                check=unclean_election.NAME,
                severity=unclean_election.SEVERITY,
                evidence=unclean_election.EVIDENCE,
                affected="null",
                command=unclean_election.COMMAND,
            )
        )
    return found
