"""The state of a group on a queue: expressions over a row that joins what is known about both.

Null means "not known". The columns are described in `checks.progress.judged`.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.rules.names import IS_LIGHT_TOPIC, IS_SYSTEM_GROUP, IS_SYSTEM_TOPIC

KNOWN: Final = {
    "lag": "try_subtract(max_offset, committed_offset)",
    "unread": """if(max_offset >= committed_offset,
        coalesce(matching_lag, try_subtract(max_offset, committed_offset)), null)""",
    "members": "if(role = 'MASTER', coalesce(subscribers, 0), null)",
    "group_members": "if(role = 'MASTER', coalesce(group_members, 0), null)",
    "is_broadcasting": "role = 'MASTER' and coalesce(group_members, 0) = 0"
    " and coalesce(broadcasters, 0) > 0",
    "is_system": f"{IS_SYSTEM_GROUP} or {IS_SYSTEM_TOPIC}",
    "is_light": IS_LIGHT_TOPIC,
    "is_gone": f"has_topics and is_in_topics is null and not {IS_LIGHT_TOPIC}",
    "is_lost": "coalesce(committed_offset < min_offset, false)",
}
"""Columns that do not depend on one another."""

WAITING_SINCE: Final = """if(unread > 0, coalesce(
    if(committed_at_ms is not null and first_unread_ms is not null,
        greatest(committed_at_ms, first_unread_ms), null),
    least(standing_since_ms,
        if(committed_at_ms is not null and last_store_ms is not null,
            greatest(committed_at_ms, last_store_ms), null))), null)"""
"""Since when messages have waited without any commit: never too early, null if unknown. It is known
from the times of the last commit and of the first unread message. Otherwise the newest message is
unread too, so unread messages have waited at least since it arrived; and the runs that saw the same
offset are evidence."""

CAUSE: Final = """case
    when state <> 'STUCK' then null
    when holder is null then 'NOT_HELD'
    when holder_epoch < lease_epoch or (is_reset and holder_epoch <= lease_epoch) then 'REFUSED'
    when try_subtract(as_of_ms, holder_committed_at_ms) between 0 and {stuck_ms} then 'POISON'
    else 'SILENT' end"""
"""Why a queue is stuck."""

STATE: Final = """case
    when is_system or is_broadcasting or is_gone or unread is null or lag < 0 then 'UNKNOWN'
    when unread = 0 then 'OK'
    when members = 0 and try_subtract(as_of_ms, waiting_since_ms) >= {stopped_ms} then 'STOPPED'
    when members > 0 and try_subtract(as_of_ms, waiting_since_ms) >= {stuck_ms} then 'STUCK'
    when unread >= {slow_messages} and rise.runs >= {slow_runs}
        and try_subtract(as_of_ms, rise.run_at_ms) >= {slow_ms}
        and committed_offset > rise.committed_offset then 'SLOW'
    when unread >= {lag_messages}
        or try_subtract(as_of_ms, first_unread_ms) >= {lag_age_ms} then 'LAGGING'
    else 'OK' end"""

SINCE: Final = """coalesce(
    if(previous.state = state, previous.since_ms, null),
    if(state in ('STUCK', 'STOPPED'), waiting_since_ms, null),
    as_of_ms)"""
"""Since when it has been in its state."""
