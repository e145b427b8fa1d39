"""Waits until what a client needs is there: a nameserver, and the brokers of its topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.methods import QUERY_BOUNDS, QUERY_ROUTE
from aerobee.cluster_view.route import TopicRoute
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock
from aerobee.v1 import broker_pb2, nameserver_pb2

READY_TIMEOUT_S: Final = 10.0
LOOK_S: Final = 0.2
ANSWER_MAX_MS: Final = 1_000
"""Everything here is answered from memory."""

_SILENCE: Final = (
    errors.Unreachable,
    errors.DeadlineExceeded,
    errors.RegistryUnavailable,
    errors.ShuttingDown,
)


async def until_ready(
    look: Callable[[int], Awaitable[Sequence[str]]], clock: Clock, timeout_ms: int
) -> None:
    """Return once `look`, which gets the ms that it may take, finds nothing missing.

    Raises:
        DeadlineExceeded: it names what is missing, as `look` said at last.
    """
    end_s = clock.monotonic_s() + timeout_ms / 1_000
    while True:
        left_ms = max(1, int((end_s - clock.monotonic_s()) * 1_000))
        missing = await look(min(ANSWER_MAX_MS, left_ms))
        if not missing:
            return
        if clock.monotonic_s() + LOOK_S >= end_s:
            raise errors.DeadlineExceeded(
                f"not ready within {timeout_ms / 1_000:g} s: {'; '.join(missing)}"
            )
        await asyncio.sleep(LOOK_S)


async def missing_brokers(
    connection: ClusterConnection,
    topics: Sequence[str],
    *,
    create_missing: bool = False,
    timeout_ms: int,
) -> list[str]:
    """What of these topics does not answer, in sentences; without topics, whether a nameserver
    does. All of it takes `timeout_ms` at most.

    Nothing is created. With `create_missing`, a topic that the first send would create is not
    missing: the brokers that would have its queues are asked.

    Raises:
        IllegalName: no topic can have such a name.
    """
    if not topics:
        return await _missing_nameserver(connection, timeout_ms)
    end_s = connection.clock.monotonic_s() + timeout_ms / 1_000
    missing: list[str] = []
    masters: dict[str, str] = {}
    for topic in topics:
        try:
            route = await _route(connection, topic, end_s, create_missing=create_missing)
        except errors.IllegalName:
            raise
        except errors.AerobeeError as error:
            missing.append(str(error))
            if isinstance(error, _SILENCE):
                break  # It would be no other for the next topic.
        else:
            missing += _masterless(route)
            masters.update({each.address: each.broker_name for each in route.masters.values()})
    silences = await asyncio.gather(
        *(
            _silence_of(connection, address, name, _left_ms(connection, end_s))
            for address, name in masters.items()
        )
    )
    return [*missing, *(each for each in silences if each)]


async def _route(
    connection: ClusterConnection, topic: str, end_s: float, *, create_missing: bool
) -> TopicRoute:
    routes = connection.routes
    try:
        return await routes.refresh(topic, timeout_ms=_left_ms(connection, end_s))
    except errors.TopicNotFound:
        if not create_missing:
            raise
    return await routes.planned(topic, timeout_ms=_left_ms(connection, end_s))


def _left_ms(connection: ClusterConnection, end_s: float) -> int:
    return max(1, int((end_s - connection.clock.monotonic_s()) * 1_000))


def _masterless(route: TopicRoute) -> list[str]:
    return [
        f"broker group {name!r} of topic {route.topic!r} has no master"
        for name in route.queues_by_broker
        if route.master(name) is None
    ]


async def _missing_nameserver(connection: ClusterConnection, timeout_ms: int) -> list[str]:
    request = nameserver_pb2.QueryRouteRequest(cluster=connection.cluster)
    try:
        await connection.nameservers.call(QUERY_ROUTE, request, timeout_ms=timeout_ms)
    except errors.AerobeeError as error:
        return [str(error)]
    return []


async def _silence_of(
    connection: ClusterConnection, address: str, name: str, timeout_ms: int
) -> str:
    """Why the master of a broker group does not answer; empty if it does, whatever it says."""
    request = broker_pb2.QueryBoundsRequest()
    try:
        await connection.channels.call(address, QUERY_BOUNDS, request, timeout_ms=timeout_ms)
    except _SILENCE as error:
        return f"broker group {name!r} does not answer: {error}"
    except errors.AerobeeError:
        pass
    return ""
