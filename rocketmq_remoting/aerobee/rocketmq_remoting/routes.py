"""A topic's route as remoting clients read it.

Broker id 0 is the master, by the protocol; our replicas keep their ids through elections. So the
master is told as 0, and a slave whose own id is 0 as the master's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aerobee.cluster_view.route import PERM_READ, PERM_WRITE, TopicRoute
from aerobee.rocketmq_remoting import json_bodies

MASTER_ID: Final = 0
DEFAULT_TOPIC: Final = "TBW102"
"""Producers ask for its route to learn where they may create a topic by sending to it."""


def reply_topic(cluster: str) -> str:
    """Where replies to requests are sent. It is no topic: they are passed on, and not stored."""
    return f"{cluster}_REPLY_TOPIC"


def told_id(broker_id: int, master_id: int | None) -> int:
    """The id of a replica as clients know it. Without a master nobody is 0."""
    if broker_id == master_id:
        return MASTER_ID
    if broker_id != MASTER_ID:
        return broker_id
    return master_id or _WITHOUT_MASTER


_WITHOUT_MASTER: Final = 1 << 30
"""For replica 0 while no master is known: no operator gives such an id."""


def replica_set_object(name: str, cluster: str, addresses: Mapping[int, str]) -> dict[str, Any]:
    """`addresses` by told id."""
    return {
        "brokerAddrs": dict(sorted(addresses.items())),
        "brokerName": name,
        "cluster": cluster,
        "enableActingMaster": False,
    }


def route_body(route: TopicRoute, cluster: str, *, is_outside: bool) -> bytes:
    """`is_outside`: for a client outside of the cluster's network."""
    brokers: list[dict[str, Any]] = []
    queues: list[dict[str, Any]] = []
    for name, count in route.queues_by_broker.items():
        replicas = route.replicas(name)
        if not replicas:
            continue
        master = route.master(name)
        master_id = None if master is None else master.broker_id
        addresses = {
            told_id(each.broker_id, master_id): (
                each.told_outside() if is_outside else each.address
            )
            for each in replicas
        }
        brokers.append(replica_set_object(name, cluster, addresses))
        is_writable = route.perm & PERM_WRITE and route.takes_writes(name)
        queues.append(
            {
                "brokerName": name,
                "perm": route.perm & PERM_READ | (PERM_WRITE if is_writable else 0),
                "readQueueNums": count,
                "topicSysFlag": 0,
                "writeQueueNums": count,
            }
        )
    return json_bodies.write(
        {"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": queues}
    )
