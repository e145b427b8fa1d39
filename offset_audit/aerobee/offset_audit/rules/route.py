"""ROUTE: what is reported if the registry and the brokers contradict each other.

Texts of SQL over a row for each broker group, or each name in routes. The registry is read before
the brokers, which are read at the same time as each other: anything that a change of master, or of
a topic, between the readings may explain is INFO.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.rules.texts import either, phrase, shell_word

NAME: Final = "ROUTE"
TITLE: Final = "The registry and the brokers contradict each other."
COMMAND: Final = "aerobee cluster show"
TOPIC_COMMAND: Final = (
    f"coalesce(concat('aerobee topic show ', {shell_word('first_topic')}), '{COMMAND}')"
)
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
