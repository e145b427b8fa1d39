"""STUCK, STOPPED, UNCOMMITTED_QUEUE: messages wait and their group commits nothing.

STUCK: though a member is there. STOPPED: because it has no members. UNCOMMITTED_QUEUE: members
subscribe, but their group never committed on one of the queues.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.checks.progress.telling import (
    QUEUE,
    either,
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

_STUCK: Final = "state = 'STUCK' and not is_lost"


def _stuck(tables: Tables, limits: Limits) -> DataFrame:
    """Queues in state STUCK. Several members are several causes; one that commits nothing is one
    cause, whatever it holds."""
    rows = judged(tables, limits).filter(_STUCK)
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
    _stuck,
    needs={"judged": f"bool_or({_STUCK})"},
)


_STOPPED: Final = "state = 'STOPPED' and not is_lost"


def _stopped(tables: Tables, limits: Limits) -> DataFrame:
    """Queues in state STOPPED: one finding for a group without any member, whatever its topics; one
    for each topic to which none of its members subscribes."""
    rows = judged(tables, limits).filter(_STOPPED)
    told = gather(
        rows.withColumn("left_topic", F.expr("if(group_members > 0, topic, null)")),
        "try_subtract(as_of_ms, waiting_since_ms)",
        keep=("as_of_ms", "waiting_since_ms", "group_members"),
        by=("cluster", "group", "left_topic"),
        affected="try_sum(unread)",
        topics="count(distinct topic)",
    )
    evidence = phrase(
        "Group {group} has {members}, and {messages} in {topic} on {where}; nothing was committed"
        " for {try_subtract(worst.as_of_ms, worst.waiting_since_ms)|duration}.",
        members=either(
            "left_topic is null",
            "no members",
            "{worst.group_members|members}, of which none subscribes to topic {left_topic}",
        ),
        messages=have_waited(),
        topic=in_topic(),
        where=where(),
    )
    return findings(
        told,
        "STOPPED",
        Severity.WARNING,
        evidence=evidence,
        topic="if(topics = 1, worst.topic, null)",
        state="'STOPPED'",
    )


STOPPED = Check(
    "STOPPED",
    "Messages wait for a group that has no members.",
    _stopped,
    needs={"judged": f"bool_or({_STOPPED})"},
)


def _uncommitted(tables: Tables, limits: Limits) -> DataFrame:
    """Queues with messages that wait for `limits.uncommitted_ms` without an offset of the group.

    A member keeps where it starts at once, so that nothing is missed when it ends: without an
    offset nobody has ever begun there. A group that has only just come is not judged: an earlier
    run must have seen the same, or it must have committed on another queue of the topic before, and
    the newest message on this one be old enough. Queues that members are not told of, since the
    topic was given fewer to read, are not theirs.
    """
    was_here = f"try_subtract(as_of_ms, group_committed_ms) >= {limits.settle_ms}"
    since = f"least(standing_since_ms, if({was_here}, last_store_ms, null))"
    rows = (
        judged(tables, limits)
        .filter("committed_offset is null and members > 0 and max_offset > min_offset")
        .filter("not is_system and not is_broadcasting and not is_gone")
        .filter("coalesce(queue_id < read_queue_count, true)")
        .withColumn("uncommitted_ms", F.expr(f"try_subtract(as_of_ms, {since})"))
        .filter(f"uncommitted_ms >= {limits.uncommitted_ms}")
    )
    told = gather(
        rows,
        "uncommitted_ms",
        keep=("uncommitted_ms", "members", "holder"),
        affected="try_sum(try_subtract(max_offset, min_offset))",
    )
    evidence = phrase(
        "Group {group} has {worst.members|members} for topic {topic} but has never committed on"
        " {where}, where {affected|messages} {have} waited for at least"
        " {worst.uncommitted_ms|duration}; {holder} holds it.",
        where=where(),
        have="if(affected = 1, 'has', 'have')",
        holder=either("worst.holder is null", "nobody", "{worst.holder}"),
    )
    return findings(
        told,
        "UNCOMMITTED_QUEUE",
        Severity.WARNING,
        evidence=evidence,
        command=(
            f"aerobee offset reset {{group}} {{worst.topic}} --queue {{{QUEUE}}} "
            "--to first --dry-run"
        ),
        state="worst.state",
    )


UNCOMMITTED_QUEUE = Check(
    "UNCOMMITTED_QUEUE",
    "A group consumes a topic but has never committed on one of its queues.",
    _uncommitted,
    needs={"judged": "bool_or(committed_offset is null and members > 0)"},
)
