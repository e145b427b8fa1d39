"""LAG, SLOW, SAMPLING: how far a progressing group is behind the end of its queues.

LAG: it is far behind. SLOW: it works, but messages arrive faster than it consumes them. SAMPLING: a
lag below zero, which comes from reading the offset after the end of the queue.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.progress.telling import check_of
from aerobee.offset_audit.rules.rule import Rule
from aerobee.offset_audit.rules.severity import Severity
from aerobee.offset_audit.rules.texts import either, phrase, where

_LAGGING: Final = "state = 'LAGGING' and not is_lost"
_LAG_TOLD: Final = phrase(
    "Group {group} has {affected|messages} of topic {topic} unread on {where}{of}; {age}{seen_by}",
    where=where("worst.unread"),
    of=either("is_filtered", ", counting only those of {lag_total|n} that match its filter"),
    age=either(
        "age_ms is null",
        "how long they have waited is not known",
        "the oldest has waited for {age_ms|duration}",
    ),
)

LAG: Final = check_of(
    Rule(
        name="LAG",
        title="A group is far behind the end of a topic, or its oldest unread message has waited "
        "long.",
        severity=Severity.WARNING,
        # With a known filter, the messages that it lets through count.
        holds=_LAGGING,
        measure="unread",
        keep=("unread",),
        sums={
            "affected": "try_sum(unread)",
            "lag_total": "try_sum(lag)",
            "is_filtered": "bool_or(matching_lag is not null)",
            "age_ms": "max(try_subtract(as_of_ms, first_unread_ms))",
        },
        evidence=_LAG_TOLD,
        columns={"state": "'LAGGING'"},
        needs={"judged": f"bool_or({_LAGGING})"},
    ),
)

_SLOW: Final = "state = 'SLOW' and not is_lost"
_SLOW_TOLD: Final = phrase(
    "Group {group} consumes {done * 1000 / span_ms|rate} messages/s of topic {topic} and falls"
    " behind by {(affected - was) * 1000 / span_ms|rate} messages/s: from {was|n} to"
    " {affected|messages} unread in {span_ms|duration}, more in each of {runs} runs,"
    " on {where}{seen_by}",
    where=where("worst.unread"),
)

SLOW: Final = check_of(
    Rule(
        name="SLOW",
        title="A group consumes more slowly than messages arrive.",
        severity=Severity.WARNING,
        # Unread messages rose from run to run while the offset moved.
        holds=_SLOW,
        measure="unread",
        keep=("unread",),
        sums={
            "affected": "try_sum(unread)",
            "was": "try_sum(rise.unread)",
            "done": "try_sum(try_subtract(committed_offset, rise.committed_offset))",
            "span_ms": "max(try_subtract(as_of_ms, rise.run_at_ms))",
            "runs": "min(rise.runs) + 1",
        },
        evidence=_SLOW_TOLD,
        columns={"state": "'SLOW'"},
        needs={"judged": f"bool_or({_SLOW})"},
    ),
)

_SAMPLING_TOLD: Final = phrase(
    "The lag of group {group} on topic {topic} is not known on {where}: offset "
    "{worst.committed_offset} was read {worst.commit_read_at_ms - worst.queue_read_at_ms|n} "
    "ms after the end {worst.max_offset}{seen_by}",
    where=where(),
)

SAMPLING: Final = check_of(
    Rule(
        name="SAMPLING",
        title="A lag below zero that comes from the order of reading.",
        severity=Severity.INFO,
        # The group progressed between two readings.
        holds="""not is_system and lag < 0 and role <> 'STORE'
            and commit_read_at_ms > queue_read_at_ms""",
        measure="try_subtract(0L, lag)",
        keep=("committed_offset", "max_offset", "commit_read_at_ms", "queue_read_at_ms"),
        sums={"affected": "try_sum(try_subtract(0L, lag))"},
        evidence=_SAMPLING_TOLD,
        columns={"state": "'UNKNOWN'"},
        needs={"judged": "bool_or(lag < 0)"},
    ),
)
