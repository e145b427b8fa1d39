"""Why a group does not get on, as far as brokers can see it: sentences, the worst first.

Pure. A listener that fails or hangs is only known to its consumer (`obstacles()` there); what
brokers see of it is that messages are in flight, wait for a retry, or are dead letters.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aerobee.client_core.admin_groups import Group, GroupQueueState
from aerobee.client_core.group_summaries import GroupSummary
from aerobee.console.words import counted, length
from aerobee.domain.names import RETRY_PREFIX

QUIET_MS: Final = 15_000
"""Members are heard every few seconds; a session lasts a minute or less."""

QUIET_SHOWN_MAX: Final = 5


class Reason(NamedTuple):
    """What is wrong, and what to do."""

    text: str
    advice: str = ""


def reasons(group: Group, summary: GroupSummary | None) -> list[Reason]:
    """Empty: brokers see nothing that holds it back."""
    waiting = [each for each in group.queues if each.lag]
    found = [
        Reason(
            f"{', '.join(group.unanswered)} does not answer: what the group has there is unknown",
            "look at the cluster",
        )
        for _ in group.unanswered[:1]
    ]
    if waiting and not group.members:
        unread = sum(each.lag for each in waiting)
        found.append(
            Reason(
                f"no member is connected, and {counted(unread, 'message')} "
                f"{'waits' if unread == 1 else 'wait'}",
                "start a consumer of this group; if one runs, it stands still or is cut off",
            )
        )
    elif group.members:
        found += _of_members(group, waiting)
    if summary is not None and summary.dead_letters:
        found.append(
            Reason(
                f"{counted(summary.dead_letters, 'message')} failed too often and "
                f"{'is a dead letter' if summary.dead_letters == 1 else 'are dead letters'}",
                "look at the dead letters; resend or drop them",
            )
        )
    return found


def _of_members(group: Group, waiting: list[GroupQueueState]) -> list[Reason]:
    found = []
    subscribed = {topic for member in group.members for topic in member.subscriptions}
    for topic in sorted({each.queue.topic for each in waiting} - subscribed):
        if not topic.startswith(RETRY_PREFIX):
            unread = sum(each.lag for each in waiting if each.queue.topic == topic)
            found.append(
                Reason(
                    f"no member subscribes to {topic}, where {counted(unread, 'message')} "
                    f"{'waits' if unread == 1 else 'wait'}",
                    "subscribe to it, or delete the group's offsets on it",
                )
            )
    wishes = {tuple(sorted(member.subscriptions.items())) for member in group.members}
    if len(wishes) > 1:
        found.append(
            Reason(
                "members subscribe to different topics or filters, so which messages are read "
                "depends on which member holds a queue",
                "give all members of a group the same subscriptions",
            )
        )
    quiet = [each for each in group.members if each.last_heartbeat_age_ms >= QUIET_MS]
    found += [
        Reason(
            f"member {member.client_id} was last heard {length(member.last_heartbeat_age_ms)} ago, "
            "and keeps its queues until its session ends",
            "see whether the process hangs, or is cut off",
        )
        for member in quiet[:QUIET_SHOWN_MAX]
    ]
    if all(not member.official and not member.broadcasting for member in group.members):
        free = [each for each in waiting if each.lease_holder is None and _is_wanted(each, group)]
        if free:
            places = ", ".join(str(each.queue) for each in free[:3])
            found.append(
                Reason(
                    f"no member holds {counted(len(free), 'queue')} with unread messages ({places}"
                    f"{', ...' if len(free) > 3 else ''})",
                    "members divide queues within seconds; if it stays so, restart them",
                )
            )
    return found


def _is_wanted(each: GroupQueueState, group: Group) -> bool:
    return any(each.queue.topic in member.subscriptions for member in group.members)
