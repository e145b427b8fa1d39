"""What is known about a store besides its bytes: to whom it belongs, and until when it must be
complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.tables import Tables

ORIGIN = ["cluster", "broker_name", "broker_id"]
STORE = [*ORIGIN, "store"]
PLACES_MAX = 16
"""Up to this many queues of a store have one finding each; more make one finding of the store."""
VERIFY: Final = "aerobee store verify {store}"
"""Examines the store of a row in detail; changes nothing."""
REPAIR: Final = "aerobee store repair {store}"
"""Shows how the store of a row could be repaired; changes nothing without --apply."""
LOSS_SEVERITY: Final = f"if(is_copy, '{Severity.ERROR}', '{Severity.CRITICAL}')"
"""A loss in a master's store or in one of unknown role is final; a slave's can be copied again."""


def with_roles(found: Frame, tables: Tables) -> Frame:
    """`found` with `role` and `epoch` of the broker, and `is_copy`: a known master has a store of
    its own.

    What a running broker reports takes precedence over its files.
    """
    brokers = (
        tables.brokers.where("answered")
        .groupBy(*ORIGIN)
        .agg(
            "coalesce(max(if(role <> 'STORE', role, null)), max(role)) role",
            "max(epoch) epoch",
        )
    )
    masters = tables.registry_groups.groupBy("broker_name").agg(
        "max(if(master_id >= 0, master_id, null)) master_id"
    )
    return (
        found.join(F.broadcast(brokers), ORIGIN, "left")
        .join(F.broadcast(masters), "broker_name", "left")
        .withColumn("is_copy", "coalesce(role = 'SLAVE' or broker_id <> master_id, false)")
    )


def whole_until(tables: Tables, limits: Limits, column: str) -> Frame:
    """`until_ms` of each origin: messages stored before this are reported if they are missing.

    If the files do not say, they may be growing now: recent messages may be in flight.
    """
    told = tables.brokers.where("role = 'STORE'").groupBy(*ORIGIN)
    settled_ms = limits.now_ms - limits.settle_ms
    return told.agg(f"coalesce(min({column}), {settled_ms}) until_ms")


def still_there(rows: Frame, begins: Frame | None, position: str) -> Frame:
    """Rows with `store` at a position that the log still has, by `Tables.log_begins`: of two
    compared sides, one may have been read before retention removed it, the other after."""
    if begins is None:
        return rows
    there = rows.join(F.broadcast(begins), "store", "left")
    return there.where(f"coalesce({position} >= log_begin, true)").drop("log_begin")


def store_check(
    name: str,
    title: str,
    find: Callable[[Tables, Limits], Frame],
    *,
    severity: Severity | str,
    evidence: str,
    needs: Mapping[str, str],
    affected: str = "messages",
    command: str = VERIFY,
    commands: Mapping[str, str] | None = None,
) -> Check:
    """A deep check with a finding for each row of `find`, which names its store."""

    def run(tables: Tables, limits: Limits) -> Frame:
        return finding_rows(
            with_roles(find(tables, limits), tables),
            name,
            severity=severity,
            evidence=evidence,
            affected=affected,
            command=command,
            commands=commands,
        )

    return Check(name, title, run, is_deep=True, needs=needs)
