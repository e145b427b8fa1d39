"""What rights apply to: topics, groups, the cluster, its audit log, and patterns that match many of
them.

    Topic:orders    Group:billing*    Cluster:*    *

A pattern's name is literal, a prefix ending with `*`, or `*` for any. `*` alone matches everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag, StrEnum
from typing import NamedTuple

from aerobee.runtime.errors import InvalidArgument

NAME_LENGTH_MAX = 255
_DERIVED_TOPICS = ("%RETRY%", "%DLQ%")


class Kind(StrEnum):
    """The kinds, as written in policies."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    AUDIT_LOG = "AuditLog"
    """What all nodes record of callers; its name is the cluster's."""
    ANY = "*"


class Action(IntFlag):
    """What is done with a resource. Pub sends to a topic; Sub reads a topic or acts as a member of
    a group; the others are for administrators."""

    PUB = 1
    SUB = 2
    CREATE = 4
    UPDATE = 8
    DELETE = 16
    GET = 32
    LIST = 64


ALL_ACTIONS = Action(127)
_WORDS = {action.name.capitalize(): action for action in Action if action.name is not None}


class Need(NamedTuple):
    """One right that a request needs. If there are several actions, any one of them is enough."""

    kind: Kind
    name: str
    actions: Action
    shows_all_topics: bool = False
    """The answer may be about any topic, and nothing can be left out of it: a user that a policy
    denies some topic does not get it."""

    def __str__(self) -> str:
        wanted = " or ".join(word for word, action in _WORDS.items() if action in self.actions)
        more = " and no topic denied" if self.shows_all_topics else ""
        return f"{wanted} on {self.resource}{more}"

    @property
    def resource(self) -> str:
        """What the right applies to."""
        return f"{self.kind}:{self.name}"


SEEING = Action.SUB | Action.GET
"""Either one is enough to see what a topic has."""


def topic_need(topic: str, actions: Action) -> Need:
    """A group's retry and dead-letter topics belong to the group, which their names contain."""
    for prefix in _DERIVED_TOPICS:
        if topic.startswith(prefix):
            return Need(Kind.GROUP, topic.removeprefix(prefix), actions)
    return Need(Kind.TOPIC, topic, actions)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which resources a policy applies to."""

    kind: Kind
    text: str

    def __post_init__(self) -> None:
        name = self.text.removesuffix("*")
        if not self.text or "*" in name or not name.isprintable() or " " in name:
            raise InvalidArgument(
                f"{self.text!r} is not a pattern of names; write a name, a prefix that ends with "
                "*, "
                "or * for all"
            )
        if len(self.text) > NAME_LENGTH_MAX:
            raise InvalidArgument(f"a pattern has at most {NAME_LENGTH_MAX} characters")
        if self.kind is Kind.ANY and self.text != "*":
            raise InvalidArgument("a pattern of every kind of resource is * alone")

    def __str__(self) -> str:
        return "*" if self.kind is Kind.ANY else f"{self.kind}:{self.text}"

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """From `Topic:orders*`. Raises InvalidArgument."""
        if text == "*":
            return cls(Kind.ANY, "*")
        kind, colon, name = text.partition(":")
        known = {str(each).lower(): each for each in Kind if each is not Kind.ANY}
        if not colon or kind.lower() not in known:
            raise InvalidArgument(
                f"{text!r} names no resource; write Topic:NAME, Group:NAME, Cluster:NAME, "
                "AuditLog:NAME or *"
            )
        return cls(known[kind.lower()], name)

    def matches(self, kind: Kind, name: str) -> bool:
        if self.kind is not Kind.ANY and self.kind is not kind:
            return False
        if self.text.endswith("*"):
            return name.startswith(self.text[:-1])
        return name == self.text

    @property
    def specificity(self) -> tuple[bool, bool, int]:
        """Of two patterns that match one resource, the greater one counts: a specific kind over
        `*`, literal over prefix, the longer prefix over the shorter."""
        return (self.kind is not Kind.ANY, not self.text.endswith("*"), len(self.text))


def parse_actions(text: str) -> Action:
    """Parse `Pub,Sub` or `All`. Raises InvalidArgument."""
    found = Action(0)
    for word in text.split(","):
        name = word.strip().capitalize()
        if name == "All":
            found |= ALL_ACTIONS
        elif name in _WORDS:
            found |= _WORDS[name]
        else:
            raise InvalidArgument(
                f"{word.strip()!r} is not an action; choose from All, {', '.join(_WORDS)}"
            )
    return found


def actions_text(actions: Action) -> str:
    """The form that `parse_actions` reads."""
    if actions == ALL_ACTIONS:
        return "All"
    return ",".join(word for word, action in _WORDS.items() if action in actions)
