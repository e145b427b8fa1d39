"""ORPHAN: offsets of topics and queues that are gone, and queues leased to nobody's member."""

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
    in_topic,
    phrase,
    where,
)
from aerobee.offset_audit.tables import Tables

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


def run(tables: Tables, limits: Limits) -> DataFrame:
    """One finding for each group and topic with such offsets, and for each client with leases that
    is no member of its group. Without a table of topics nothing is known to be gone."""
    rows = (
        judged(tables, limits)
        .filter("not is_system")
        .withColumn("kind", F.expr(_KIND))
        .filter("kind is not null")
        .withColumns(
            {
                "of_topic": F.expr("if(kind = 'LEASE', null, topic)"),
                "of_holder": F.expr("if(kind = 'LEASE', holder, null)"),
            }
        )
    )
    told = gather(
        rows,
        "coalesce(committed_offset, 0)",
        keep=("queue_count", "group_members"),
        by=("cluster", "group", "kind", "of_topic", "of_holder"),
        affected="count(1)",
        topics="count(distinct topic)",
    )
    return findings(
        told,
        "ORPHAN",
        Severity.WARNING,
        evidence=f"""case kind when 'TOPIC' then {_TOPIC} when 'QUEUE' then {_QUEUE}
            else {_LEASE} end""",
        commands={
            "kind = 'TOPIC'": "aerobee offset delete {group} {worst.topic}",
            "kind = 'QUEUE'": "aerobee offset delete {group} {worst.topic} "
            f"--queue {{{QUEUE}}}",
        },
        topic="if(topics = 1, worst.topic, null)",
        state="worst.state",
    )


ORPHAN = Check(
    "ORPHAN",
    "Offsets of topics or queues that do not exist, or leases of clients that are not members.",
    run,
    needs={"judged": f"bool_or({_KIND} is not null)"},
)
