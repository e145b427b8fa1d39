"""UNREACHABLE without Spark: expected brokers that did not answer."""

from __future__ import annotations

from typing import Any

from aerobee.offset_audit.doctor.judging import Tables
from aerobee.offset_audit.doctor.telling import finding
from aerobee.offset_audit.rules import unreachable as rules
from aerobee.offset_audit.rules.expressions import read


def unreachable(tables: Tables) -> list[dict[str, Any]]:
    """One finding for each broker that did not answer; it explains everything that is unknown
    because of it."""
    live = tables["brokers"]
    masters = {row["broker_name"] for row in live if row["answered"] and row["role"] == "MASTER"}
    asked = {(row["broker_name"], row["broker_id"]) for row in live}
    silent = [dict(row) for row in live if not row["answered"]]
    for row in silent:
        row["is_busy"] = read(rules.IS_BUSY)(row)
        row["reason"] = read(rules.NO_ANSWER)(row)
    registered = {
        (row["broker_name"], row["broker_id"]) for row in tables.get("registry_brokers", ())
    }
    for group in tables.get("registry_groups", ()):
        for broker_id in group["replicas"]:
            place = (group["broker_name"], broker_id)
            if place not in registered and place not in asked:
                silent.append(
                    {
                        "cluster": group["cluster"],
                        "broker_name": group["broker_name"],
                        "broker_id": broker_id,
                        "epoch": group["epoch"],
                        "address": None,
                        "role": None,
                        "reason": rules.NOT_REGISTERED,
                        "is_busy": False,
                    }
                )
    return [_finding(row, masters, tables) for row in silent]


def _finding(row: dict[str, Any], masters: set[Any], tables: Tables) -> dict[str, Any]:
    has_master = row["broker_name"] in masters
    topics = [
        each
        for each in tables.get("registry_topics", ())
        if not has_master and each["broker_name"] == row["broker_name"]
    ]
    row |= {
        "has_master": has_master,
        "queues": sum(each["write_queue_count"] for each in topics) if topics else None,
        "topics": len({each["topic"] for each in topics}),
    }
    return finding(
        row,
        check=rules.NAME,
        severity=rules.SEVERITY,
        evidence=rules.EVIDENCE,
        affected=rules.AFFECTED,
        command=rules.COMMAND,
    )
