"""A broker group in pods, as seen by its clients by names, or by the test at pods' addresses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from aerobee.client_core.channels import Channels
from aerobee.client_core.methods import CREATE_TOPIC, DESCRIBE_CLUSTER, GET_STATS
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, nameserver_pb2
from tests.failover.world import GROUP, QUEUES, TOPIC

CLUSTER = "aerobee"
OBSERVER_TIMEOUT_MS = 1_000
TIMEOUT_S = 60.0


class PodGroup:
    """The replicas of GROUP. What the functions return may change while they are asked."""

    def __init__(
        self,
        nameservers: Callable[[], list[str]],
        broker: Callable[[int], str],
        replicas: Sequence[int],
    ) -> None:
        self.replicas = replicas
        self._nameservers = nameservers
        self._broker = broker
        self._channels = Channels()

    @property
    def cluster(self) -> str:
        return CLUSTER

    @property
    def nameserver_addresses(self) -> list[str]:
        return self._nameservers()

    def address(self, broker_id: int) -> str:
        return self._broker(broker_id)

    async def close(self) -> None:
        await self._channels.close()

    async def create_topic(self) -> None:
        request = nameserver_pb2.CreateTopicRequest(cluster=CLUSTER, name=TOPIC, queues=QUEUES)
        await self._channels.call(self.nameserver_addresses[0], CREATE_TOPIC, request)

    async def record(self) -> nameserver_pb2.GroupRecord:
        """As a nameserver has it; master_id -1 if none can tell."""
        request = nameserver_pb2.DescribeClusterRequest(cluster=CLUSTER)
        for address in self.nameserver_addresses:
            with suppress(errors.MqError):
                answer = await self._channels.call(
                    address, DESCRIBE_CLUSTER, request, timeout_ms=OBSERVER_TIMEOUT_MS
                )
                for group in answer.groups:
                    if group.broker_name == GROUP:
                        return group
        return nameserver_pb2.GroupRecord(master_id=-1)

    async def stats(self, broker_id: int) -> broker_pb2.BrokerStats:
        return await self._channels.call(
            self.address(broker_id),
            GET_STATS,
            broker_pb2.GetStatsRequest(),
            timeout_ms=OBSERVER_TIMEOUT_MS,
        )

    async def healthy(self) -> int:
        """Until all replicas are in sync and the master takes messages; the master's id."""
        master_id = -1

        async def holds() -> bool:
            nonlocal master_id
            record = await self.record()
            master_id = record.master_id
            if master_id < 0 or {one.broker_id for one in record.in_sync} != set(self.replicas):
                return False
            with suppress(errors.MqError):
                return (await self.stats(master_id)).writable
            return False

        await self.until(holds, f"{self.replicas} in sync and a master")
        return master_id

    async def equal_ends(self) -> int:
        """Until all replicas have equal logs, all of it confirmed; their end."""
        end = -1

        async def holds() -> bool:
            nonlocal end
            with suppress(errors.MqError):
                stats = [await self.stats(one) for one in self.replicas]
                ends = {one.log_appended_end for one in stats}
                ends |= {one.log_confirmed_end for one in stats}
                end = min(ends)
                return len(ends) == 1
            return False

        await self.until(holds, "equal logs")
        return end

    async def until(
        self,
        holds: Callable[[], Coroutine[Any, Any, bool]],
        what: str,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """AssertionError when it takes too long."""
        deadline_s = time.monotonic() + timeout_s
        while not await holds():
            if time.monotonic() > deadline_s:
                raise AssertionError(f"waited {timeout_s} s for {what}\n{await self.account()}")
            await asyncio.sleep(0.05)

    async def account(self) -> str:
        """The group's record; logs are with the pods."""
        return str(await self.record())
