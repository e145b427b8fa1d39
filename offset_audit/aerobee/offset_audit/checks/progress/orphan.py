"""ORPHAN: offsets of topics and queues that are gone, and queues leased to a client that is not a
member."""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.progress.telling import check_of
from aerobee.offset_audit.rules.rule import Rule
from aerobee.offset_audit.rules.severity import Severity
from aerobee.offset_audit.rules.texts import (
    QUEUE,
    either,
    in_topic,
    phrase,
    where,
)

_KIND: Final = """case
    when committed_offset is not null and has_topics and not is_light and is_in_topics is null
        then 'TOPIC'
    when committed_offset is not null and queue_id >= queue_count and max_offset is null
        then 'QUEUE'
    when holder is not null and members is not null and holder_is_member is null then 'LEASE'
    end"""
_TOPIC: Final = phrase(
    "Group {group} has {affected|offsets} of topic {worst.topic}, which no longer exists on "
    "{brokers}; a new topic of that name would be read from these offsets.",
    brokers=either("broker_name is null", "several brokers", "{broker_name}"),
)
_QUEUE: Final = phrase(
    "Group {group} has {affected|offsets} of topic {worst.topic} on {where}, but the topic has"
    " {worst.queue_count|queues} there.",
    where=where(),
)
_LEASE: Final = phrase(
    "Group {group} has leased {where} of {topic} to {of_holder}, which is not one of its "
    "{worst.group_members|members} there.",
    where=where(),
    topic=in_topic(),
)

ORPHAN: Final = check_of(
    Rule(
        name="ORPHAN",
        title="Offsets of topics or queues that do not exist, or leases of clients that are not "
        "members.",
        severity=Severity.WARNING,
        asked_of="not is_system",
        added={
            "kind": _KIND,
            "of_topic": "if(kind = 'LEASE', null, topic)",
            "of_holder": "if(kind = 'LEASE', holder, null)",
        },
        # Without a table of topics, nothing is known to be gone.
        holds="kind is not null",
        by=("cluster", "group", "kind", "of_topic", "of_holder"),
        measure="coalesce(committed_offset, 0)",
        keep=("queue_count", "group_members"),
        sums={"affected": "count(1)", "topics": "count(distinct topic)"},
        evidence=f"""case kind when 'TOPIC' then {_TOPIC} when 'QUEUE' then {_QUEUE}
            else {_LEASE} end""",
        columns={"topic": "if(topics = 1, worst.topic, null)", "state": "worst.state"},
        commands={
            "kind = 'TOPIC'": "aerobee offset delete {group} {worst.topic}",
            "kind = 'QUEUE'": "aerobee offset delete {group} {worst.topic}"
            f" --queue {{{QUEUE}}}",
        },
        needs={"judged": f"bool_or({_KIND} is not null)"},
    ),
)
