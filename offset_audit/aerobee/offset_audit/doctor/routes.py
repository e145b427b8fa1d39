"""ROUTE without Spark: what the registry says about brokers and topics, against what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from aerobee.offset_audit.doctor.judging import BROKER, Row, Tables, part_of
from aerobee.offset_audit.doctor.telling import finding
from aerobee.offset_audit.rules import route as rules
from aerobee.offset_audit.rules.expressions import read
from aerobee.offset_audit.rules.limits import Limits


def contradictions(tables: Tables, _: Limits) -> list[Row]:
    """One finding for each broker group, and each name in routes, that is not as stated."""
    live = [row for row in tables["brokers"] if row["role"] != "STORE"]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in live:
        groups.setdefault(part_of(row, BROKER), []).append(row)
    registered = _registered(tables)
    found: list[Row] = []
    for place, rows in groups.items():
        row = {**dict(zip(BROKER, place, strict=True)), **registered.get(place[1], _UNREGISTERED)}
        heard = [each for each in rows if each["answered"]]
        masters = [each for each in heard if each["role"] == "MASTER"]
        if masters:
            found += _of_masters(row, masters)
        elif heard and len(heard) == len(rows):
            found += _no_master(row, heard)
    return [*found, *_unknown_brokers(live, tables), *_lacking_topics(live, tables)]


_UNREGISTERED: Row = {
    "is_registered": False,
    **dict.fromkeys(
        ("registry_revision", "registry_epoch", "registry_master_id", "registry_replicas")
    ),
}


def _registered(tables: Tables) -> dict[str, Row]:
    """What the registry has for each group, by its name."""
    by_name: dict[str, list[Row]] = {}
    for row in tables.get("registry_groups", ()):
        by_name.setdefault(row["broker_name"], []).append(row)
    return {
        name: {
            "is_registered": True,
            "registry_revision": _highest(row["revision"] for row in rows),
            "registry_epoch": _highest(row["epoch"] for row in rows),
            "registry_master_id": _highest(
                each for row in rows if (each := row["master_id"]) is None or each >= 0
            ),
            "registry_replicas": next(
                (row["replicas"] for row in rows if row["replicas"] is not None), None
            ),
        }
        for name, rows in by_name.items()
    }


def _of_masters(row: Row, masters: list[Row]) -> Iterator[Row]:
    """Two masters, or one that the registry does not know as such, or only in another epoch."""
    told = sorted(
        {part_of(each, ("broker_id", "epoch", "address")) for each in masters},
        key=lambda values: tuple((value is not None, value or 0) for value in values[:2]),
    )
    row |= {
        "role": "MASTER",
        "masters": len({(each["broker_id"], each["incarnation"] or "") for each in masters}),
        "epochs": len({each["epoch"] for each in masters} - {None}),
        "newest_epoch": _highest(each["epoch"] for each in masters),
        "last_asked_ms": _highest(each["asked_at_ms"] for each in masters),
    }
    row["newest_answered_ms"] = next(
        (each["answered_at_ms"] for each in masters if each["epoch"] == row["newest_epoch"]), None
    )
    if row["masters"] > 1:
        row["is_proven"] = read(rules.IS_PROVEN)(row)
        names = [
            read(rules.ONE_MASTER)(
                {**row, "one": dict(zip(("broker_id", "epoch", "address"), each, strict=True))}
            )
            for each in told[: rules.NAMED_MAX]
        ]
        row["names"] = ", ".join(names)
        yield _finding(row, rules.TWO_SEVERITY, rules.TWO_EVIDENCE, "masters")
        return
    row["broker_id"], row["epoch"] = told[0][:2]
    if row["is_registered"] and read(rules.OTHER_HOLDS)(row):
        row["is_newer"] = read(rules.OTHER_IS_NEWER)(row)
        yield _finding(row, rules.IF_NEWER, rules.OTHER_EVIDENCE, "1")


def _no_master(row: Row, heard: list[Row]) -> Iterator[Row]:
    """All replicas answered, none of them as master."""
    ids = {each["broker_id"] for each in heard}
    replicas = row["registry_replicas"]
    if replicas is None or not ids.issuperset(replicas):
        return
    row |= {"heard": len(ids), "newest_epoch": _highest(each["epoch"] for each in heard)}
    row["is_newer"] = read(rules.NONE_IS_NEWER)(row)
    yield _finding(row, rules.IF_NEWER, rules.NONE_EVIDENCE, "heard")


def _unknown_brokers(live: list[Row], tables: Tables) -> Iterator[Row]:
    """Names in routes that no broker has: neither registered nor heard of."""
    known = {row["broker_name"] for row in live}
    for table in ("registry_groups", "registry_brokers"):
        known |= {row["broker_name"] for row in tables.get(table, ())}
    routed: dict[tuple[Any, ...], list[Row]] = {}
    for row in tables.get("registry_topics", ()):
        if row["broker_name"] not in known:
            routed.setdefault(part_of(row, BROKER), []).append(row)
    for place, rows in routed.items():
        told = {**dict(zip(BROKER, place, strict=True)), **_topics_of(rows)}
        told["queues"] = sum(row["write_queue_count"] or 0 for row in rows)
        yield _topics_finding(told, "'ERROR'", rules.UNKNOWN_EVIDENCE)


def _lacking_topics(live: list[Row], tables: Tables) -> Iterator[Row]:
    """Topics routed to a master that does not have them; judged as in the audit."""
    masters = [row for row in live if row["answered"] and row["role"] == "MASTER"]
    replicas = {(*part_of(row, BROKER), row["broker_id"]) for row in masters}

    def of_masters(name: str) -> list[Row]:
        return [
            row
            for row in tables.get(name, ())
            if (*part_of(row, BROKER), row["broker_id"]) in replicas
        ]

    owned = of_masters("topics")
    has = {part_of(row, ("broker_name", "topic")) for row in owned}
    has |= _deleted_topics(of_masters("queues"))
    for place in dict.fromkeys(part_of(row, BROKER) for row in owned):
        known = _highest(row["revision"] for row in owned if part_of(row, BROKER) == place)
        lacking = [
            row | {"known": known}
            for row in tables.get("registry_topics", ())
            if row["broker_name"] == place[1] and part_of(row, ("broker_name", "topic")) not in has
        ]
        if lacking:
            broker = min(
                (row for row in masters if part_of(row, BROKER) == place),
                key=lambda row: row["broker_id"],
            )
            told = {
                **{name: broker[name] for name in (*BROKER, "broker_id", "role", "epoch")},
                **_topics_of(lacking),
                "is_new": all(map(read(rules.IS_NEW), lacking)),
            }
            yield _topics_finding(told, rules.IF_NEW, rules.LACKING_EVIDENCE)


def _deleted_topics(queues: list[Row]) -> set[tuple[Any, ...]]:
    by_topic: dict[tuple[Any, ...], list[Row]] = {}
    for row in queues:
        by_topic.setdefault(part_of(row, ("broker_name", "topic")), []).append(row)
    return {
        topic
        for topic, rows in by_topic.items()
        if all(map(read(rules.IS_TRIMMED), rows)) and max(row["max_offset"] for row in rows) > 0
    }


def _topics_of(rows: list[Row]) -> Row:
    topics = sorted({row["topic"] for row in rows})
    only = topics[0] if len(topics) == 1 else None
    return {"topics": len(topics), "first_topic": topics[0], "topic": only}


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _topics_finding(row: Row, severity: str, evidence: str) -> Row:
    return _finding(row, severity, evidence, "topics") | {"command": read(rules.TOPIC_COMMAND)(row)}


def _finding(row: Row, severity: str, evidence: str, affected: str) -> Row:
    return finding(
        row,
        check=rules.NAME,
        severity=severity,
        evidence=evidence,
        affected=affected,
        command=rules.COMMAND,
    )
