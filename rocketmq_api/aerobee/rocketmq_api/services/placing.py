"""To which broker and queue each message of a request goes."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.cluster_view.route import PERM_WRITE, TopicRoute
from aerobee.rocketmq_api.rules.queue_choice import queue_of_group, queue_of_priority
from aerobee.runtime.errors import NoBrokerAvailable, NotWritableTopic
from apache.rocketmq.v2 import definition_pb2 as v2

Place = tuple[int, int]
"""The index of the message in the request, and its queue id."""


def places(
    messages: Sequence[v2.Message], route: TopicRoute, *, here: str, turn: int
) -> dict[str, list[Place]]:
    """By broker name. Messages without a group stay `here`, if that is a broker of the topic, and
    are spread over its queues by `turn`.

    Raises NotWritableTopic, NoBrokerAvailable.
    """
    if not route.perm & PERM_WRITE:
        raise NotWritableTopic(
            f"topic {route.topic} has no writable queue: its permission forbids sending"
        )
    found: dict[str, list[Place]] = {}
    chosen: tuple[str, int] | None = None
    for index, message in enumerate(messages):
        system = message.system_properties
        if system.message_group:
            queue = queue_of_group(system.message_group, route.open_queues or route.queues)
            found.setdefault(queue.broker_name, []).append((index, queue.queue_id))
            continue
        if chosen is None:
            chosen = _in_turn(route, here, turn)
        name, queue_id = chosen
        if system.HasField("priority"):
            queue_id = queue_of_priority(system.priority, route.queues_by_broker[name])
        found.setdefault(name, []).append((index, queue_id))
    return found


def _in_turn(route: TopicRoute, here: str, turn: int) -> tuple[str, int]:
    counts = route.queues_by_broker
    if counts.get(here) and here not in route.closed:
        return here, turn % counts[here]
    names = [name for name, count in counts.items() if count and route.takes_writes(name)]
    if not names:
        raise NoBrokerAvailable(
            f"no broker of topic {route.topic} takes messages now: retry, or see `aerobee cluster "
            "show`"
        )
    name = names[turn % len(names)]
    return name, turn // len(names) % counts[name]
