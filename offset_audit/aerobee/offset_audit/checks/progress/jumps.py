"""REWOUND, RESET, SKIPPED: a group's offset was moved in another way than by consuming.

REWOUND: it fell, and no operator's reset explains it. RESET: an operator set it back, or forward
without skipping anything. SKIPPED: it was moved over messages that the group never consumed.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.progress.history import KEY
from aerobee.offset_audit.checks.progress.moves import (
    BACK,
    BELOW_JOURNAL,
    BETWEEN_RUNS,
    BY_OPERATOR,
    FELL,
    FOREIGN,
    FREE,
    TOO_FAST,
    UNPROVEN,
    moves,
)
from aerobee.offset_audit.checks.progress.telling import findings, gather
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import either, phrase, reset_to, where
from aerobee.offset_audit.tables import Tables


def _rewound(tables: Tables, limits: Limits) -> Frame:
    """The strongest evidence counts: the journal itself falls; the current offset is less than the
    journal says; an earlier run saw more.

    The last one is no proof without the journal, because a reset may have come between the runs:
    then it is a WARNING that says so.
    """
    back = moves(tables, limits).where(F.col("way").isin(*BACK))
    names = ", ".join(back.columns)
    strongest = (
        back.groupBy(*KEY).agg(f"min_by(struct({names}), struct(way, at_ms)) told").select("told.*")
    )
    told = gather(
        strongest,
        "try_subtract(was, now)",
        keep=("was", "was_ms", "now"),
        by=("cluster", "group", "topic", "way"),
        affected="try_sum(try_subtract(was, now))",
    )
    proof = f"""case way
        when '{FELL}' then 'its journal has no reset there'
        when '{BELOW_JOURNAL}' then 'its journal has the larger offset and no reset after it'
        when '{BETWEEN_RUNS}' then 'its journal has no reset since the earlier run'
        else 'the journal was not read from there on, so a reset may be the cause' end"""
    evidence = phrase(
        "The offset of group {group} on topic {topic} fell on {where} from {worst.was}{when} to"
        " {worst.now}; {proof}; {affected|messages} {are} delivered again.",
        where=where("try_subtract(worst.was, worst.now)"),
        when=either("worst.was_ms is not null", " ({worst.was_ms|moment})"),
        proof=proof,
        are="if(affected = 1, 'is', 'are')",
    )
    return findings(
        told,
        "REWOUND",
        f"if(way = '{UNPROVEN}', '{Severity.WARNING}', '{Severity.ERROR}')",
        evidence=evidence,
        command=reset_to("worst.was"),
    )


REWOUND = Check(
    "REWOUND",
    "A group's offset fell without a reset.",
    _rewound,
    needs={"moves": f"bool_or(way in {BACK})"},
)


def _reset(tables: Tables, limits: Limits) -> Frame:
    """Resets of the last `limits.reset_ms`: back is a WARNING, because messages are redelivered; to
    the group's own offset, or where it had none, is information. Forward belongs to SKIPPED."""
    rows = (
        moves(tables, limits)
        .where(f"way = '{BY_OPERATOR}' and (was is null or now <= was)")
        .withColumn("back", "greatest(coalesce(try_subtract(was, now), 0), 0)")
        .withColumn("is_back", "back > 0")
    )
    told = gather(
        rows,
        "back",
        keep=("was", "now", "back"),
        by=("cluster", "group", "topic", "is_back"),
        affected="try_sum(back)",
        newest_ms="max(at_ms)",
    )
    set_back = phrase(
        ", from offset {worst.was} back to {worst.now}; {affected|messages} {are} delivered again",
        are="if(affected = 1, 'is', 'are')",
    )
    elsewhere = phrase(
        ", to offset {worst.now}{stood}",
        stood=either(
            "worst.was is null", "; its offset before is not known", ", which it already had"
        ),
    )
    evidence = phrase(
        "{when} an operator reset group {group} on topic {topic}, {where}{what}.",
        when=either("newest_ms is null", "At an unknown time", "At {newest_ms|moment}"),
        where=where("worst.back"),
        what=f"if(is_back, {set_back}, {elsewhere})",
    )
    return findings(
        told,
        "RESET",
        f"if(is_back, '{Severity.WARNING}', '{Severity.INFO}')",
        evidence=evidence,
    )


RESET = Check(
    "RESET",
    "An operator reset a group's offset.",
    _reset,
    needs={"moves": f"bool_or(way = '{BY_OPERATOR}')"},
)


def _skipped(tables: Tables, limits: Limits) -> Frame:
    """Forward jumps over unread messages: by a reset; by a commit that no holder of the queue can
    have made, or that no consumer can have reached by working; or, in files at rest, without an
    entry in the journal.

    Counts the messages that the group has not consumed since, after a reset back.
    """
    told = gather(
        moves(tables, limits).where("passed > 0"),
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
        when '{BY_OPERATOR}' then {phrase("an operator's reset")}
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
        f"if(way in ('{BY_OPERATOR}', '{FREE}'), '{Severity.WARNING}', '{Severity.CRITICAL}')",
        evidence=evidence,
        command=reset_to("worst.was"),
    )


SKIPPED = Check(
    "SKIPPED",
    "A group's offset was moved over messages that it never consumed.",
    _skipped,
    needs={"moves": "bool_or(passed > 0)"},
)
