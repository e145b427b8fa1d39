"""What has to change for a cluster to have what a file declares: a pure comparison.

Owns: which changes there are, in which order they are safe, and which are refused. A field that a
file does not name is never compared, and so never changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Value = int | str | bool | None
"""None: the field is not there, such as an attribute of a topic or a limit of a quota."""
Fields = Mapping[str, Value]


class Kind(StrEnum):
    """In the order in which they are made: a user has its limits before its rights."""

    TOPIC = "topic"
    GROUP = "group"
    QUOTA = "quota"
    POLICY = "policy"


class Action(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


QUEUES = "queues"
TYPE = "type"
DECISION = "decision"
USER = "user"

_KINDS = tuple(Kind)
_REMOVED = (Kind.POLICY, Kind.QUOTA, Kind.TOPIC)
"""What may be removed, in this order: rights before what they are about. Removing a group would
lose its offsets, and its settings have no absence."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One thing of a cluster: `("orders",)`, `("user", "shop")`, `("shop", "Topic:orders*")`."""

    kind: Kind
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.words)}"

    @property
    def user(self) -> str | None:
        """The user without whom the cluster refuses it."""
        if self.kind is Kind.POLICY:
            return self.words[0]
        is_of_user = self.kind is Kind.QUOTA and self.words[0] == USER
        return self.words[1] if is_of_user else None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a file declares."""

    things: Mapping[Key, Fields]
    sections: frozenset[Kind] = frozenset()
    """Those that the file has, even if they are empty."""


@dataclass(frozen=True, slots=True)
class State:
    """What the cluster has of the kinds that the wish has; of groups all that the wish names, by
    their defaults if no broker knows them."""

    things: Mapping[Key, Fields]
    users: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    field: str
    before: Value
    after: Value


@dataclass(frozen=True, slots=True)
class Step:
    action: Action
    key: Key
    changes: tuple[Change, ...] = ()
    """All that is new of what is created."""
    wanted: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A wish that the cluster cannot fulfil."""

    key: Key
    why: str


@dataclass(frozen=True, slots=True)
class Drift:
    """What the cluster has more of than the file says, and cannot lose: told, and no reason to
    leave the rest of the file undone."""

    key: Key
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Nothing of it is done if anything is refused."""

    steps: tuple[Step, ...]
    refused: tuple[Refusal, ...]
    unchanged: int
    """How many things have all that the file says, or more."""
    drift: tuple[Drift, ...] = ()

    @property
    def differs(self) -> bool:
        return bool(self.steps or self.refused or self.drift)


def to_remove(wish: Wish, state: State) -> list[Key]:
    """What a prune takes away: what the sections of the file do not have. Of policies only those of
    users that the file names, because others may be an administrator's own."""
    users = {key.words[0] for key in wish.things if key.kind is Kind.POLICY}
    return [
        key
        for kind in _REMOVED
        if kind in wish.sections
        for key in sorted(state.things)
        if key.kind is kind
        and key not in wish.things
        and (kind is not Kind.POLICY or key.words[0] in users)
    ]


def plan(
    wish: Wish,
    state: State,
    *,
    removed: Collection[Key] = (),
    unread: Mapping[Key, int] | None = None,
) -> Plan:
    """The steps from `state` to `wish`, in a safe order: what is made before what is removed, and
    rights are taken before others are given.

    Args:
        removed: keys of `to_remove` that shall go.
        unread: of topics among them: how many messages would be lost, if that is not allowed.
    """
    steps: list[Step] = []
    refused: list[Refusal] = []
    drift: list[Drift] = []
    unchanged = 0
    for key in sorted(wish.things, key=lambda one: _turn(one, wish.things[one])):
        wanted = wish.things[key]
        if grown := _grown(key, wanted, state):
            drift.append(Drift(key, grown))
            wanted = {name: value for name, value in wanted.items() if name != QUEUES}
        why = _refusal(key, wanted, state)
        step = _step(key, wanted, state.things.get(key))
        if why is not None:
            refused.append(Refusal(key, why))
        elif step is not None:
            steps.append(step)
        else:
            unchanged += 1
    for key in removed:
        if count := (unread or {}).get(key, 0):
            refused.append(
                Refusal(
                    key,
                    f"it has {count:,} unread messages; read them, or give --delete-unread to "
                    "delete it with them",
                )
            )
        else:
            steps.append(Step(Action.DELETE, key))
    return Plan(tuple(steps), tuple(refused), unchanged, tuple(drift))


def _turn(key: Key, wanted: Fields) -> tuple[int, bool, Key]:
    return _KINDS.index(key.kind), wanted.get(DECISION) != "Deny", key


def _step(key: Key, wanted: Fields, have: Fields | None) -> Step | None:
    before: Fields = {} if have is None else have
    changes = tuple(
        Change(name, before.get(name), value)
        for name, value in wanted.items()
        if before.get(name) != value
    )
    if have is None:
        return Step(Action.CREATE, key, changes, wanted)
    return Step(Action.CHANGE, key, changes, wanted) if changes else None


def _grown(key: Key, wanted: Fields, state: State) -> str:
    """What to say of a topic with more queues than it should have; empty: it has not."""
    queues, wished = state.things.get(key, {}).get(QUEUES), wanted.get(QUEUES)
    if isinstance(queues, int) and isinstance(wished, int) and wished < queues:
        return (
            f"it has {queues} queues, and the file says {wished}; queues are never taken away, so "
            f"write queues: {queues}"
        )
    return ""


def _refusal(key: Key, wanted: Fields, state: State) -> str | None:
    if key.user is not None and key.user not in state.users:
        return (
            f"there is no user {key.user}; create it with `aerobee user create {key.user}`, which "
            "gives its secret to you alone"
        )
    have = state.things.get(key)
    if key.kind is not Kind.TOPIC or have is None:
        return None
    if TYPE in wanted and wanted[TYPE] != have.get(TYPE):
        return (
            f"its type is {have.get(TYPE)}, not {wanted[TYPE]}, and its messages stay as they are; "
            f"use another topic, or `aerobee topic update {key.words[0]} --attribute "
            f"message.type={wanted[TYPE]}` if its clients can take it"
        )
    return None
