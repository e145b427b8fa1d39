"""What each call needs, stated for every method of every protocol.

A server has one table, path -> MethodNeeds, and does not start if a method it serves has no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aerobee.access.nodes import NodeName
from aerobee.access.resources import SEEING, Action, Kind, Need, topic_need
from aerobee.domain.names import is_system_topic


class Who(Enum):
    """Who may make a call in the first place."""

    ANYONE = "anyone"
    """Even without credentials: the answer reveals nothing of what is stored."""
    USERS = "users"
    """Users with the needed rights, and nodes acting for users that they have checked."""
    SUPER_USERS = "super users"
    BROKERS = "brokers"
    """No user, whatever its rights."""
    NODES = "nodes"
    """Brokers and nameservers for users that they have checked; no user, and no operator."""


NeedsOf = Callable[[Any, str], Iterable[Need]]
"""The needs of a request, or of one frame of a stream; the text is the namespace in the call's
metadata."""


def nothing_more(request: Any, namespace: str) -> Iterable[Need]:
    """Being allowed to make the call is enough."""
    return ()


@dataclass(frozen=True, slots=True)
class MethodNeeds:
    """What a call of one method needs."""

    who: Who
    of: NeedsOf = nothing_more
    names: Callable[[Any], set[str]] | None = None
    """For frames that come in large numbers: the names on which their needs depend, and nothing
    else. Names that were allowed are not checked again."""
    is_judged_again: bool = False
    """For a call with one answer that may wait for what it reads: it is judged again before the
    answer if policies have changed in the meantime."""
    is_act: bool = False
    """The call is a line of the audit log. Calls of users are recorded only if the request needs an
    administrator's right."""
    speaker: Callable[[Any], NodeName | None] | None = None
    """The node that a request, or a frame, claims to come from; it must be the node that proved
    itself. None for a frame: it does not say."""


NeedsTable = Mapping[str, MethodNeeds]

ANYONE = MethodNeeds(Who.ANYONE)
SUPER_USERS = MethodNeeds(Who.SUPER_USERS, is_act=True)
ANY_USER = MethodNeeds(Who.USERS)


STANDARD_NEEDS: NeedsTable = {
    "/grpc.health.v1.Health/Check": ANYONE,
    "/grpc.health.v1.Health/List": ANYONE,
    "/grpc.health.v1.Health/Watch": ANYONE,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": ANYONE,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": ANYONE,
}
"""Whether a service answers, and the protocols, which are public."""


def needing(of: NeedsOf, *, judged_again: bool = False) -> MethodNeeds:
    return MethodNeeds(Who.USERS, of, is_judged_again=judged_again)


def administering(of: NeedsOf) -> MethodNeeds:
    """For calls that always or sometimes change something."""
    return MethodNeeds(Who.USERS, of, is_act=True)


def of_broker(speaker: Callable[[Any], NodeName | None], *, is_act: bool = False) -> MethodNeeds:
    """For what a broker says about itself. `is_act`: it influences who is master."""
    return MethodNeeds(Who.BROKERS, is_act=is_act, speaker=speaker)


def of_nodes() -> MethodNeeds:
    """For what nodes ask each other in order to serve users."""
    return MethodNeeds(Who.NODES)


def needing_of_names(of: NeedsOf, names: Callable[[Any], set[str]]) -> MethodNeeds:
    """For streams with many frames."""
    return MethodNeeds(Who.USERS, of, names)


_READING = SEEING | Action.LIST


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one cluster, as requests name them."""

    cluster_name: str

    def topic(self, name: str, actions: Action) -> Need:
        """Topics that brokers write for themselves belong to the cluster: rights on all topics do
        not include them. Any one of the actions is enough, as everywhere."""
        if is_system_topic(name):
            reads, changes = actions & _READING, actions & ~_READING
            found = Action.GET if reads else Action(0)
            need = self.cluster(found | Action.UPDATE if changes else found)
            # They hold what belongs to others: messages that wait, offsets of groups.
            return need._replace(shows_all_topics=bool(reads))
        return topic_need(name, actions)

    def topics(self, names: Iterable[str], actions: Action) -> list[Need]:
        return [self.topic(name, actions) for name in set(names)]

    def all_topics(self, actions: Action) -> Need:
        return Need(Kind.TOPIC, "*", actions)

    def group(self, name: str, actions: Action) -> Need:
        return Need(Kind.GROUP, name, actions)

    def all_groups(self, actions: Action) -> Need:
        return Need(Kind.GROUP, "*", actions)

    def audit_log(self) -> Need:
        """Its lines are about everything, and none is left out."""
        return Need(Kind.AUDIT_LOG, self.cluster_name, Action.GET, shows_all_topics=True)

    def cluster(self, actions: Action) -> Need:
        return Need(Kind.CLUSTER, self.cluster_name, actions)
