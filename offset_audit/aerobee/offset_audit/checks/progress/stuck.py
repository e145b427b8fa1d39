"""STUCK: members are there and messages wait, but the offset stands still; split by cause."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.checks.progress.telling import (
    findings,
    gather,
    have_waited,
    in_topic,
    phrase,
    where,
)
from aerobee.offset_audit.tables import Tables

_NOT_HELD: Final = phrase(
    "it has no holder, though {worst.members|members} {subscribe} to the topic",
    subscribe="if(worst.members = 1, 'subscribes', 'subscribe')",
)
_REFUSED: Final = phrase(
    "its holder {holder} has lease {worst.holder_epoch}, which is not valid since {what} lease "
    "{worst.lease_epoch}, so its commits are refused",
    what="if(worst.is_reset, 'a reset after', 'a commit under')",
)
_POISON: Final = phrase(
    "its holder {holder} committed on other queues"
    " {try_subtract(worst.as_of_ms, worst.holder_committed_at_ms)|duration} ago, so the message"
    " at offset {worst.committed_offset} blocks it"
)
_SILENT: Final = phrase("its holder {holder} is a member but commits nothing")

_ROWS: Final = "state = 'STUCK' and not is_lost"


def run(tables: Tables, limits: Limits) -> DataFrame:
    """Queues in state STUCK. Several members are several causes; one that commits nothing is one
    cause, whatever it holds."""
    rows = judged(tables, limits).filter(_ROWS)
    told = gather(
        rows.withColumn("of_topic", F.expr("if(cause = 'SILENT', null, topic)")),
        "try_subtract(as_of_ms, waiting_since_ms)",
        keep=(
            "as_of_ms",
            "waiting_since_ms",
            "members",
            "holder_epoch",
            "lease_epoch",
            "is_reset",
            "holder_committed_at_ms",
            "committed_offset",
        ),
        by=("cluster", "group", "cause", "holder", "of_topic"),
        affected="try_sum(unread)",
        topics="count(distinct topic)",
    )
    why = f"""case cause when 'NOT_HELD' then {_NOT_HELD} when 'REFUSED' then {_REFUSED}
        when 'POISON' then {_POISON} else {_SILENT} end"""
    evidence = phrase(
        "Group {group} has not moved for"
        " {try_subtract(worst.as_of_ms, worst.waiting_since_ms)|duration} on {where}"
        " of {topic} though {messages}: {why}.",
        where=where(),
        topic=in_topic(),
        messages=have_waited(),
        why=why,
    )
    return findings(
        told,
        "STUCK",
        Severity.WARNING,
        evidence=evidence,
        topic="if(topics = 1, worst.topic, null)",
        state="'STUCK'",
    )


STUCK = Check(
    "STUCK",
    "A group has members and messages wait, but its offset does not move.",
    run,
    needs={"judged": f"bool_or({_ROWS})"},
)
