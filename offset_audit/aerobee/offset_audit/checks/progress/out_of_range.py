"""OUT_OF_RANGE_LOW, OUT_OF_RANGE_HIGH: offsets outside what a queue holds.

LOW: messages were removed before a group read them. HIGH: an offset is after the end of its queue.
A cut or missing file of a consume queue moves the queue's ends while the messages are still in the
log: another check reports that, so the ends of the log, if they were read, count too.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.progress.history import KEY
from aerobee.offset_audit.checks.progress.judged import QUEUE, judged
from aerobee.offset_audit.checks.progress.replicas import REPLICA
from aerobee.offset_audit.checks.progress.telling import check_of
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.rule import Rule
from aerobee.offset_audit.rules.severity import Severity
from aerobee.offset_audit.rules.texts import either, phrase, reset_to, where
from aerobee.offset_audit.tables import Tables


def _held(tables: Tables, limits: Limits) -> Frame:
    """Judged rows with `held_min` and `held_end`: the start and end of what queue and log
    contain."""
    rows = judged(tables, limits).where(
        "committed_offset < min_offset or committed_offset > max_offset"
    )
    logs = (
        tables.queue_ranges.where("source = 'LOG'")
        .groupBy(*REPLICA, "topic", "queue_id")
        .agg("min(first_offset) log_min", "try_add(max(last_offset), 1L) log_end")
    )
    return rows.join(logs, [*QUEUE, "broker_id"], "left").withColumns(
        {
            "held_min": "least(min_offset, log_min)",
            "held_end": "greatest(max_offset, log_end)",
        }
    )


def _told(tables: Tables, limits: Limits) -> Frame:
    """With `told_offset`: the group's last offset in the journal."""
    told = (
        tables.journal.where("kind not in ('sentBack', 'resent', 'returned')")
        .groupBy(*KEY)
        .agg("max_by(offset, struct(journal_offset, entry)) told_offset")
    )
    return _held(tables, limits).join(told, list(KEY), "left")


_OUTSIDE: Final = """(committed_offset < min_offset or committed_offset > max_offset)
    and not is_broadcasting and not is_gone
    and (lag >= 0 or role = 'STORE'
        or not coalesce(commit_read_at_ms > queue_read_at_ms, false))"""
"""Rows whose lag is unknown are left out. `held_min` and `held_end`: the start and end of what
queue and log contain."""

_LOW_TOLD: Final = phrase(
    "{affected|messages} of topic {topic} {were} removed before group {group} read {them}, on"
    " {where}: offset {worst.committed_offset}, first message {worst.held_min}{filtered}{empty}"
    "{seen_by}",
    were="if(affected = 1, 'was', 'were')",
    them="if(affected = 1, 'it', 'them')",
    where=where("try_subtract(worst.held_min, worst.committed_offset)"),
    filtered=either("is_filtered", "; whether they match its filter is not known"),
    empty=either("is_empty", "; the group has no members"),
)

OUT_OF_RANGE_LOW: Final = check_of(
    Rule(
        name="OUT_OF_RANGE_LOW",
        title="Messages were removed before a group read them.",
        severity=Severity.CRITICAL,
        asked_of=_OUTSIDE,
        # A group that committed just before the reading may have progressed during it; if so, that
        # is in its journal, which is read later.
        holds="""committed_offset < held_min and not is_system
            and not coalesce(try_subtract(commit_read_at_ms, committed_at_ms) < {settle_ms}, false)
            and not coalesce(role <> 'STORE' and told_offset >= held_min, false)""",
        measure="try_subtract(held_min, committed_offset)",
        keep=("held_min", "committed_offset"),
        sums={
            "affected": "try_sum(try_subtract(held_min, committed_offset))",
            "is_filtered": "bool_or(matching_lag is not null)",
            "is_empty": "bool_and(group_members = 0)",
        },
        evidence=_LOW_TOLD,
        columns={"state": "worst.state"},
        command=reset_to("worst.held_min"),
        needs={"judged": "bool_or(committed_offset < min_offset)"},
    ),
    _told,
)

_HIGH_TOLD: Final = phrase(
    "Group {group} is {affected|messages} past the end of topic {topic} on {where}: offset "
    "{worst.committed_offset}, end {worst.held_end}; as many new messages would be "
    "skipped{seen_by}",
    where=where("try_subtract(worst.committed_offset, worst.held_end)"),
)

OUT_OF_RANGE_HIGH: Final = check_of(
    Rule(
        name="OUT_OF_RANGE_HIGH",
        title="A group's offset is past the end of its queue.",
        severity=Severity.ERROR,
        asked_of=_OUTSIDE,
        # The next messages would be skipped.
        holds="committed_offset > held_end",
        measure="try_subtract(committed_offset, held_end)",
        keep=("committed_offset", "held_end"),
        sums={"affected": "try_sum(try_subtract(committed_offset, held_end))"},
        evidence=_HIGH_TOLD,
        columns={"state": "'UNKNOWN'"},
        command=reset_to("worst.held_end"),
        needs={"judged": "bool_or(committed_offset > max_offset)"},
    ),
    _held,
)
