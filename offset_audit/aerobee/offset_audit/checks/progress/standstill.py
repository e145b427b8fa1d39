"""STUCK, STOPPED, UNCOMMITTED_QUEUE: messages wait and their group commits nothing.

STUCK: although there is a member. STOPPED: because there is none. UNCOMMITTED_QUEUE: members
subscribe, but their group never committed on one of the queues.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.progress.telling import check_of
from aerobee.offset_audit.rules.rule import Rule
from aerobee.offset_audit.rules.severity import Severity
from aerobee.offset_audit.rules.texts import (
    QUEUE,
    either,
    have_waited,
    in_topic,
    phrase,
    where,
)

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
_WHY: Final = f"""case cause when 'NOT_HELD' then {_NOT_HELD} when 'REFUSED' then {_REFUSED}
    when 'POISON' then {_POISON} else {_SILENT} end"""

_STUCK: Final = "state = 'STUCK' and not is_lost"
_STUCK_TOLD: Final = phrase(
    "Group {group} has not moved for"
    " {try_subtract(worst.as_of_ms, worst.waiting_since_ms)|duration} on {where}"
    " of {topic} though {messages}: {why}.",
    where=where(),
    topic=in_topic(),
    messages=have_waited(),
    why=_WHY,
)

STUCK: Final = check_of(
    Rule(
        name="STUCK",
        title="A group has members and messages wait, but its offset does not move.",
        severity=Severity.WARNING,
        holds=_STUCK,
        # Several members are several causes; one that commits nothing is one cause, however many
        # queues it holds.
        added={"of_topic": "if(cause = 'SILENT', null, topic)"},
        by=("cluster", "group", "cause", "holder", "of_topic"),
        measure="try_subtract(as_of_ms, waiting_since_ms)",
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
        sums={"affected": "try_sum(unread)", "topics": "count(distinct topic)"},
        evidence=_STUCK_TOLD,
        columns={"topic": "if(topics = 1, worst.topic, null)", "state": "'STUCK'"},
        needs={"judged": f"bool_or({_STUCK})"},
    ),
)

_STOPPED: Final = "state = 'STOPPED' and not is_lost"
_STOPPED_TOLD: Final = phrase(
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

STOPPED: Final = check_of(
    Rule(
        name="STOPPED",
        title="Messages wait for a group that has no members.",
        severity=Severity.WARNING,
        holds=_STOPPED,
        # One finding for a group without any member, whatever its topics; one for each topic to
        # which none of its members subscribes.
        added={"left_topic": "if(group_members > 0, topic, null)"},
        by=("cluster", "group", "left_topic"),
        measure="try_subtract(as_of_ms, waiting_since_ms)",
        keep=("as_of_ms", "waiting_since_ms", "group_members"),
        sums={"affected": "try_sum(unread)", "topics": "count(distinct topic)"},
        evidence=_STOPPED_TOLD,
        columns={"topic": "if(topics = 1, worst.topic, null)", "state": "'STOPPED'"},
        needs={"judged": f"bool_or({_STOPPED})"},
    ),
)

_SINCE: Final = """least(standing_since_ms,
    if(try_subtract(as_of_ms, group_committed_ms) >= {settle_ms}, last_store_ms, null))"""
"""A member stores its starting offset immediately, so that nothing is missed when it ends: without
an offset nobody has ever begun there. A group that has just appeared is not judged: an earlier run
must have seen the same, or it must have committed on another queue of the topic before, and the
newest message on this one must be old enough."""
_UNCOMMITTED_TOLD: Final = phrase(
    "Group {group} has {worst.members|members} for topic {topic} but has never committed on"
    " {where}, where {affected|messages} {have} waited for at least"
    " {worst.uncommitted_ms|duration}; {holder} holds it.",
    where=where(),
    have="if(affected = 1, 'has', 'have')",
    holder=either("worst.holder is null", "nobody", "{worst.holder}"),
)

UNCOMMITTED_QUEUE: Final = check_of(
    Rule(
        name="UNCOMMITTED_QUEUE",
        title="A group consumes a topic but has never committed on one of its queues.",
        severity=Severity.WARNING,
        # Queues not announced to members, since the topic was given fewer to read, are not theirs.
        asked_of="""committed_offset is null and members > 0 and max_offset > min_offset
            and not is_system and not is_broadcasting and not is_gone
            and coalesce(queue_id < read_queue_count, true)""",
        added={"uncommitted_ms": f"try_subtract(as_of_ms, {_SINCE})"},
        holds="uncommitted_ms >= {uncommitted_ms}",
        measure="uncommitted_ms",
        keep=("uncommitted_ms", "members", "holder"),
        sums={"affected": "try_sum(try_subtract(max_offset, min_offset))"},
        evidence=_UNCOMMITTED_TOLD,
        columns={"state": "worst.state"},
        command=(
            f"aerobee offset reset {{group}} {{worst.topic}} --queue {{{QUEUE}}}"
            " --to first --dry-run"
        ),
        needs={"judged": "bool_or(committed_offset is null and members > 0)"},
    ),
)
