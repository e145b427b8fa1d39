"""A rule: which queues of a group have a trouble, and how it is reported.

All of it is SQL text over the columns of a judged queue (`judging`). The audit lets Spark evaluate
it, and `aerobee doctor` evaluates it itself: so both report the same about the same cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from aerobee.offset_audit.rules.limits import Limits
from aerobee.offset_audit.rules.severity import Severity
from aerobee.offset_audit.rules.texts import SHOW_GROUP

PLACE: Final = ("broker_name", "broker_id", "role", "epoch", "topic", "queue_id", "state")
"""Of the worst queue of a finding."""
SEEN_BY: Final = "if(bool_or(role = 'SLAVE'), ', as a slave saw it.', '.')"
"""How a sentence ends; an aggregate over the queues of a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One question about groups on queues. `{name}` in `asked_of`, `added` and `holds` is the limit
    of that name."""

    name: str
    title: str
    severity: Severity
    asked_of: str = ""
    """Which queues are considered; a condition without the columns `added`."""
    added: Mapping[str, str] = field(default_factory=dict)
    """Further columns, each of which may use those before it."""
    holds: str
    """Which queues have the trouble."""
    by: tuple[str, ...] = ("cluster", "group", "topic")
    """The queues that are equal in these make one finding."""
    measure: str
    """The worst queue of a finding is the one with the highest value."""
    keep: tuple[str, ...] = ()
    """Columns of the worst queue, in addition to its place."""
    sums: Mapping[str, str] = field(default_factory=dict)
    """Aggregates over the queues of a finding; `affected` is one of them."""
    evidence: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of the finding."""
    command: str = SHOW_GROUP
    commands: Mapping[str, str] | None = None
    """By conditions, commands that come before it."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """As in `Check`."""


def numbers_of(limits: Limits) -> dict[str, int]:
    """The limits by name."""
    return {each.name: getattr(limits, each.name) for each in fields(limits)}
