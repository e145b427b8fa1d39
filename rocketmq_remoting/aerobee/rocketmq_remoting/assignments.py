"""Queues that a broker assigns: a client asks whose of a topic's queues it shall read, instead of
dividing them itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue
from aerobee.rocketmq_remoting import json_bodies
from aerobee.rocketmq_remoting.queues import queue_object
from aerobee.runtime.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class AssignmentAsked:
    """Who asks, and for which topic."""

    client_id: str
    group: str
    topic: str
    is_broadcasting: bool


def read_assignment_asked(body: bytes) -> AssignmentAsked:
    """Raises InvalidArgument."""
    found = json_bodies.read_object(body)
    client_id, group, topic = (found.get(name) for name in ("clientId", "consumerGroup", "topic"))
    if not (isinstance(client_id, str) and isinstance(group, str) and isinstance(topic, str)):
        raise InvalidArgument("the body names no client, group and topic")
    return AssignmentAsked(client_id, group, topic, found.get("messageModel") == "BROADCASTING")


def share_of(
    client_id: str, members: Sequence[str], queues: Sequence[MessageQueue]
) -> Sequence[MessageQueue]:
    """Consecutive queues, as Java's `AllocateMessageQueueAveragely` gives them; none to a client
    that is no member. Both sequences are sorted."""
    if client_id not in members:
        return ()
    at = members.index(client_id)
    each, more = divmod(len(queues), len(members))
    first = at * each + min(at, more)
    return queues[first : first + each + (at < more)]


def assignment_body(queues: Sequence[MessageQueue], *, is_pop: bool = False) -> bytes:
    """Each is read by pulling, or all by POP."""
    mode = "POP" if is_pop else "PULL"
    found = [{"messageQueue": queue_object(queue), "mode": mode} for queue in queues]
    return json_bodies.write({"messageQueueAssignments": found})


def popped_queues(topic: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """What each member gets of a topic that its group takes by POP: all queues of each broker, by
    a number that names none."""
    names = sorted({queue.broker_name for queue in queues})
    return [MessageQueue(topic, name, -1) for name in names]


@dataclass(frozen=True, slots=True)
class ModeWish:
    """How a group shall take a topic."""

    group: str
    topic: str
    is_pop: bool


def read_mode(body: bytes) -> ModeWish:
    """Raises InvalidArgument."""
    found = json_bodies.read_object(body)
    group, topic, mode = (found.get(name) for name in ("consumerGroup", "topic", "mode"))
    if not (isinstance(group, str) and group and isinstance(topic, str) and topic):
        raise InvalidArgument("the body names no group and topic")
    if mode not in ("POP", "PULL"):
        raise InvalidArgument(f"the mode is {str(mode)[:40]!r}; it must be PULL or POP")
    return ModeWish(group, topic, mode == "POP")
