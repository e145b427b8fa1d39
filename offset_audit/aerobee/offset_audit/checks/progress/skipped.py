"""SKIPPED: a group's offset was moved over messages that it never consumed."""

from __future__ import annotations

from pyspark.sql import DataFrame

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.moves import FOREIGN, FREE, RESET, TOO_FAST, moves
from aerobee.offset_audit.checks.progress.telling import (
    either,
    findings,
    gather,
    phrase,
    reset_to,
    where,
)
from aerobee.offset_audit.tables import Tables


def run(tables: Tables, limits: Limits) -> DataFrame:
    """Forward jumps over unread messages: by a reset; by a commit that no holder of the queue can
    have made or no consumer have worked up to; or, in files at rest, by no entry of the journal.

    Counted are the messages that the group has not consumed since, after a reset back.
    """
    told = gather(
        moves(tables, limits).filter("passed > 0"),
        "passed",
        keep=("was", "now", "passed", "client_id", "lease_epoch", "took_ms"),
        by=("cluster", "group", "topic", "way"),
        affected="try_sum(passed)",
        newest_ms="max(at_ms)",
        is_exact="bool_and(is_exact)",
    )
    by_client = "a commit by {client}"
    client = "if(worst.client_id <> '', worst.client_id, 'a client')"
    under = (
        f"{by_client} under lease {{worst.lease_epoch}}, which belongs to another client or queue,"
    )
    after = (
        f"{by_client} {{worst.took_ms|duration}} after the previous one, faster than "
        f"{limits.delivery_per_s_max:,} messages/s,"
    )
    how = f"""case way
        when '{RESET}' then {phrase("an operator's reset")}
        when '{FREE}' then {phrase(f"{by_client} without a lease", client=client)}
        when '{FOREIGN}' then {phrase(under, client=client)}
        when '{TOO_FAST}' then {phrase(after, client=client)}
        else {phrase("no entry of the journal")} end"""
    evidence = phrase(
        "Group {group} {never} {affected|messages} of topic {topic} on {where}: {how} moved it from"
        " offset {worst.was} to {worst.now}{when}.",
        never="if(is_exact, 'never consumed', 'has not consumed up to')",
        where=where("worst.passed"),
        how=how,
        when=either("newest_ms is not null", " at {newest_ms|moment}"),
    )
    return findings(
        told,
        "SKIPPED",
        f"if(way in ('{RESET}', '{FREE}'), '{Severity.WARNING}', '{Severity.CRITICAL}')",
        evidence=evidence,
        command=reset_to("worst.was"),
    )


SKIPPED = Check(
    "SKIPPED",
    "A group's offset was moved over messages that it never consumed.",
    run,
    needs={"moves": "bool_or(passed > 0)"},
)
