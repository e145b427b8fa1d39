"""UNREACHABLE: what is reported about an expected broker that did not answer.

Texts of SQL over a row for each such broker, with what its group's other replicas report.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.rules.texts import either, phrase

NAME: Final = "UNREACHABLE"
TITLE: Final = "A broker that should be there did not answer."
NOT_ASKED: Final = "is registered but was not asked"
NOT_REGISTERED: Final = "is a replica of the broker group but no longer registered"
COMMAND: Final = "aerobee cluster show"

BUSY: Final = "busy: "
"""The prefix of `error` for a broker that answered, but had no capacity for the reading in time."""
IS_BUSY: Final = f"coalesce(startswith(error, '{BUSY}'), false)"
NO_ANSWER: Final = either(
    "is_busy",
    f"is busy with other audits: {{replace(error, '{BUSY}', '')}}",
    "did not answer: {error}",
)
SEVERITY: Final = "if(is_busy, 'WARNING', 'ERROR')"
"""A busy one is up and working; the next run may succeed."""
HAS_MASTER: Final = "coalesce(has_master, false)"
AFFECTED: Final = f"if({HAS_MASTER}, 0, queues)"
"""Queues for which no other broker answers."""
EVIDENCE: Final = phrase(
    "{broker_name}:{broker_id}{at} {reason}{unknown}.",
    at=either("address is not null", " at {address}"),
    unknown=f"""case when {HAS_MASTER}
            then '; the group\\'s master answers, so its queues are known'
        when queues is not null then {
        phrase(
            "; no master of the group answers: the state of {held} of {spread} is not known",
            held=either("queues = 1", "1 queue", "{queues} queues"),
            spread=either("topics = 1", "1 topic", "{topics} topics"),
        )
    }
        else '; what it holds is not known' end""",
)
