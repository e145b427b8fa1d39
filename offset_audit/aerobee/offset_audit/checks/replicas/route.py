"""ROUTE: what the registry says about brokers and topics, against what the brokers say themselves.

The registry is read before the brokers, which are read at the same time as each other: anything
that a change of master, or the deletion of a topic, between the readings may explain is INFO.
Otherwise, the next audit's registry shows it. If a broker of a group did not answer, it is unknown
whether the group has a master: UNREACHABLE reports that.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import GROUP, IS_MASTER, with_small_tables
from aerobee.offset_audit.frames.frame import Frame, union
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

NAME: Final = "ROUTE"
TITLE: Final = "The registry and the brokers contradict each other."
COMMAND: Final = "aerobee cluster show"
TOPIC_COMMAND: Final = "aerobee topic show {first_topic}"
NAMED_MAX: Final = 3
_END: Final = either(
    "is_newer",
    "; a change of master since it was read may explain this: run the audit again.",
    ".",
)
IF_NEWER: Final = "if(is_newer, 'INFO', 'ERROR')"

ONE_MASTER: Final = phrase("{broker_name}:{one.broker_id} at {one.address} (epoch {one.epoch})")
IS_PROVEN: Final = (
    "epochs <= 1 or coalesce(registry_epoch >= newest_epoch, false)"
    " or coalesce(newest_answered_ms <= last_asked_ms, false)"
)
"""Masters in one epoch, or in an older one after the newest had been assigned: the registry, which
was read before, or the newest master's own answer had it before the other was asked. Otherwise the
readings may be from before and after a handover."""
TWO_SEVERITY: Final = "if(is_proven, 'CRITICAL', 'INFO')"
TWO_EVIDENCE: Final = phrase(
    "{masters} replicas of the broker group each say that they are its master: {names}{end}",
    end=either(
        "is_proven",
        ".",
        "; a hand-over while they were asked may explain this: run the audit again.",
    ),
)

OTHER_HOLDS: Final = "broker_id <> registry_master_id or epoch <> registry_epoch"
OTHER_IS_NEWER: Final = "coalesce(epoch > registry_epoch, false)"
OTHER_EVIDENCE: Final = phrase(
    "{broker_name}:{broker_id} says that it is the master of epoch {epoch}; the registry, at "
    "revision {registry_revision}, names {broker_name}:{registry_master_id}, of epoch "
    "{registry_epoch}{end}",
    end=_END,
)

NONE_IS_NEWER: Final = "coalesce(newest_epoch > registry_epoch, false)"
NONE_EVIDENCE: Final = phrase(
    "{replicas} and none is master; the registry names {master}, epoch {registry_epoch}{end}",
    replicas=either("heard = 1", "1 replica answers", "{heard} replicas answer"),
    master=either(
        "registry_master_id is not null", "{broker_name}:{registry_master_id}", "none either"
    ),
    end=_END,
)

UNKNOWN_EVIDENCE: Final = phrase(
    "{routed} routed to {broker_name}, but no broker has this name: {held}, among them "
    "{first_topic}'s.",
    routed=either("topics = 1", "1 topic is", "{topics} topics are"),
    held=either("queues = 1", "1 queue", "{queues} queues"),
)

IS_TRIMMED: Final = "min_offset = max_offset"
"""For a queue: a topic of which a broker lists only such queues, at least one of them used, has
been deleted since the registry was read."""
IS_NEW: Final = "coalesce(topic_revision > known, false)"
IF_NEW: Final = "if(is_new, 'INFO', 'ERROR')"
LACKING_EVIDENCE: Final = phrase(
    "{routed} routed to {broker_name}:{broker_id}, which does not know {which}{first_topic}{end}",
    routed=either("topics = 1", "1 topic is", "{topics} topics are"),
    which=either("topics = 1", "it: ", "them; the first: "),
    end=either("is_new", "; the broker may not know of the change yet: run the audit again.", "."),
)


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each broker group, and each name in routes, that is not as stated."""
    tables = with_small_tables(tables)
    live = tables.brokers.where("role is null or role <> 'STORE'")
    return union(
        [
            _two_masters(live, tables),
            _other_master(live, tables),
            _no_master(live, tables),
            _unknown_brokers(live, tables),
            _lacking_topics(live, tables),
        ]
    )


def _masters(live: Frame) -> Frame:
    """The masters of each group by their own word."""
    return (
        live.where(IS_MASTER)
        .groupBy(*GROUP)
        .agg(
            # Two processes may claim one id, and one process may be known by two addresses.
            "count(distinct struct(broker_id, coalesce(incarnation, '') incarnation)) masters",
            "sort_array(collect_set(struct(broker_id, epoch, address))) told",
            "max(epoch) newest_epoch",
            "count(distinct epoch) epochs",
            "max(asked_at_ms) last_asked_ms",
            "min_by(answered_at_ms, -epoch) newest_answered_ms",
        )
    )


def _two_masters(live: Frame, tables: Tables) -> Frame:
    """Several replicas that claim to be master of one group: in one epoch, or in an older one after
    the newest had been assigned. That is proved if the registry, which was read before, or the
    newest master's own answer had it before the other was asked; otherwise the readings may be from
    before and after a handover."""
    registered = _registered(tables).select("broker_name", "registry_epoch")
    found = (
        _masters(live)
        .where("masters > 1")
        .join(registered, "broker_name", "left")
        .withColumns(
            {
                "is_proven": IS_PROVEN,
                "names": f"""array_join(transform(slice(told, 1, {NAMED_MAX}),
                    one -> {ONE_MASTER}), ', ')""",
                "role": "'MASTER'",
            }
        )
    )
    return finding_rows(
        found,
        NAME,
        severity=TWO_SEVERITY,
        evidence=TWO_EVIDENCE,
        affected="masters",
        command=COMMAND,
    )


def _registered(tables: Tables) -> Frame:
    return tables.registry_groups.groupBy("broker_name").agg(
        "max(cluster) registry_cluster",
        "max(revision) registry_revision",
        "max(epoch) registry_epoch",
        "max(if(master_id >= 0, master_id, null)) registry_master_id",
        "first(replicas, true) replicas",
    )


def _other_master(live: Frame, tables: Tables) -> Frame:
    """A master that the registry does not know as such, or only in another epoch. One with a newer
    epoch than the registry had when it was read may have become master since."""
    found = (
        _masters(live)
        .where("masters = 1")
        .withColumns(
            {"broker_id": "told[0].broker_id", "epoch": "told[0].epoch", "role": "'MASTER'"}
        )
        .join(_registered(tables), "broker_name")
        .where(OTHER_HOLDS)
        .withColumn("is_newer", OTHER_IS_NEWER)
    )
    return finding_rows(
        found,
        NAME,
        severity=IF_NEWER,
        evidence=OTHER_EVIDENCE,
        affected="1",
        command=COMMAND,
    )


def _no_master(live: Frame, tables: Tables) -> Frame:
    """Groups in which all replicas answered, none of them as master. If one of them knows a newer
    epoch than the registry had, the master changed between the answers."""
    found = (
        live.where("answered")
        .groupBy(*GROUP)
        .agg(
            "count_if(role = 'MASTER') masters",
            "collect_set(broker_id) heard_ids",
            "max(epoch) newest_epoch",
        )
        .where("masters = 0")
        .join(_registered(tables), "broker_name")
        .where("size(array_except(replicas, heard_ids)) = 0")
        .join(live.where("not answered").select(*GROUP).distinct(), GROUP, "left_anti")
        .withColumns({"heard": "size(heard_ids)", "is_newer": NONE_IS_NEWER})
    )
    return finding_rows(
        found,
        NAME,
        severity=IF_NEWER,
        evidence=NONE_EVIDENCE,
        affected="heard",
        command=COMMAND,
    )


def _unknown_brokers(live: Frame, tables: Tables) -> Frame:
    """Names in routes that no broker has: neither registered nor heard of."""
    named = (tables.registry_groups, tables.registry_brokers, live)
    known = union([one.select("broker_name") for one in named]).where("broker_name is not null")
    found = (
        tables.registry_topics.join(known.distinct(), "broker_name", "left_anti")
        .groupBy(*GROUP)
        .agg(
            "count(distinct topic) topics",
            "sum(write_queue_count) queues",
            "min(topic) first_topic",
        )
        .withColumn("topic", "if(topics = 1, first_topic, null)")
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.ERROR,
        evidence=UNKNOWN_EVIDENCE,
        affected="topics",
        command=TOPIC_COMMAND,
        otherwise=COMMAND,
    )


def _lacking_topics(live: Frame, tables: Tables) -> Frame:
    """Topics routed to a master that does not have them. A broker whose topics were not read is not
    judged, nor a topic of which it still has queues, all of them trimmed: it has been deleted since
    the registry was read."""
    masters = live.where(IS_MASTER).select(*GROUP, "broker_id", "role", "epoch")
    owned = tables.topics.join(
        masters.select(*GROUP, "broker_id"), [*GROUP, "broker_id"], "left_semi"
    )
    telling = masters.join(owned.groupBy(*GROUP).agg("max(revision) known"), GROUP)
    topic = ["broker_name", "topic"]
    found = (
        tables.registry_topics.select(*topic, "topic_revision")
        .join(owned.select(*topic).distinct(), topic, "left_anti")
        .join(_deleted_topics(tables, masters), topic, "left_anti")
        .join(telling, "broker_name")
        .groupBy(*GROUP)
        .agg(
            "min(struct(broker_id, role, epoch)) broker",
            "count(distinct topic) topics",
            "min(topic) first_topic",
            f"bool_and({IS_NEW}) is_new",
        )
        .select("*", "broker.*")
        .withColumn("topic", "if(topics = 1, first_topic, null)")
    )
    return finding_rows(
        found,
        NAME,
        severity=IF_NEW,
        evidence=LACKING_EVIDENCE,
        affected="topics",
        command=TOPIC_COMMAND,
        otherwise=COMMAND,
    )


def _deleted_topics(tables: Tables, masters: Frame) -> Frame:
    """Topics whose queues a master still lists, without a message in any."""
    return (
        tables.queues.join(masters.select(*GROUP, "broker_id"), [*GROUP, "broker_id"], "left_semi")
        .groupBy("broker_name", "topic")
        .agg(f"bool_and({IS_TRIMMED}) is_trimmed", "max(max_offset) last")
        .where("is_trimmed and last > 0")
        .select("broker_name", "topic")
    )


CHECK = Check(
    NAME,
    TITLE,
    run,
    needs={"brokers": "bool_or(coalesce(role, '') <> 'STORE')", "registry_topics": "count(1) > 0"},
)
