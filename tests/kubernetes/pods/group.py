"""A broker group in pods, as seen by its clients by names, or by the test at pods' addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import CREATE_TOPIC, DESCRIBE_CLUSTER, GET_STATS
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2, nameserver_pb2
from tests.failover.world import GROUP, QUEUES, TOPIC
from tests.support.waiting import until

CLUSTER = "aerobee"
OBSERVER_TIMEOUT_MS = 1_000
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class View:
    """What one nameserver says of the group."""

    address: str
    answer: nameserver_pb2.ClusterDescription | None
    """None: it does not answer, and `trouble` says why."""
    trouble: str = ""

    @property
    def record(self) -> nameserver_pb2.GroupRecord | None:
        for group in self.answer.groups if self.answer is not None else ():
            if group.broker_name == GROUP:
                return group
        return None

    @property
    def is_fresh(self) -> bool:
        """It knows the group, and etcd confirms that nothing is missing."""
        return self.answer is not None and not self.answer.stale and self.record is not None

    def __str__(self) -> str:
        if self.answer is None:
            return f"nameserver {self.address}: {self.trouble}"
        heard = zip(self.answer.brokers, self.answer.heartbeat_age_ms, strict=True)
        ages_ms = {one.identity.broker_id: age_ms for one, age_ms in heard}
        record = "does not know the group"
        if (group := self.record) is not None:
            in_sync = [one.broker_id for one in group.in_sync]
            record = (
                f"master {group.master_id} ({group.master_instance}) of epoch {group.epoch}, "
                f"in sync {in_sync} of {list(group.replicas)}, revision {group.revision}"
            )
        state = "stale" if self.answer.stale else "fresh"
        return (
            f"nameserver {self.address}: {state}, version {self.answer.version}, {record}; "
            f"heartbeats by replica, ms ago: {ages_ms}"
        )


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

    async def views(self) -> list[View]:
        """Each nameserver's own."""
        return await asyncio.gather(*(self._view(one) for one in self.nameserver_addresses))

    async def record(self) -> nameserver_pb2.GroupRecord:
        """As a nameserver has it, one that is not stale if there is one; master_id -1 if none can
        tell."""
        views = sorted(await self.views(), key=lambda one: not one.is_fresh)
        records = [one.record for one in views if one.record is not None]
        return records[0] if records else nameserver_pb2.GroupRecord(master_id=-1)

    async def _view(self, address: str) -> View:
        request = nameserver_pb2.DescribeClusterRequest(cluster=CLUSTER)
        try:
            answer = await self._channels.call(
                address, DESCRIBE_CLUSTER, request, timeout_ms=OBSERVER_TIMEOUT_MS
            )
        except errors.AerobeeError as error:
            return View(address, None, f"{type(error).__name__}: {error}")
        return View(address, answer)

    async def stats(self, broker_id: int) -> broker_pb2.BrokerStats:
        return await self._channels.call(
            self.address(broker_id),
            GET_STATS,
            broker_pb2.GetStatsRequest(),
            timeout_ms=OBSERVER_TIMEOUT_MS,
        )

    async def healthy(self) -> int:
        """Until every nameserver is fresh and has all replicas in sync, under one master that takes
        messages; the master's id."""
        master_id = -1

        async def holds() -> bool:
            nonlocal master_id
            views = await self.views()
            records = [one.record for one in views if one.record is not None and one.is_fresh]
            if not views or len(records) < len(views):
                return False
            master_id = records[0].master_id
            if master_id < 0 or not all(self._is_whole(one, records[0]) for one in records):
                return False
            with suppress(errors.AerobeeError):
                return (await self.stats(master_id)).writable
            return False

        await self.until(holds, f"{self.replicas} in sync and a master")
        return master_id

    def _is_whole(
        self, record: nameserver_pb2.GroupRecord, other: nameserver_pb2.GroupRecord
    ) -> bool:
        in_sync = {one.broker_id for one in record.in_sync}
        return in_sync == set(self.replicas) and record.epoch == other.epoch

    async def equal_ends(self) -> int:
        """Until all replicas have equal logs, all of it confirmed; their end."""
        end = -1

        async def holds() -> bool:
            nonlocal end
            with suppress(errors.AerobeeError):
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
        await until(holds, what, timeout_s=timeout_s, account=self.account)

    async def account(self) -> str:
        """What each nameserver and each replica says; logs are with the pods."""
        brokers = await asyncio.gather(*(self._told_by(one) for one in self.replicas))
        return "\n".join((*map(str, await self.views()), *brokers))

    async def _told_by(self, broker_id: int) -> str:
        try:
            stats = await self.stats(broker_id)
        except errors.AerobeeError as error:
            return f"replica {broker_id}: {type(error).__name__}: {error}"
        role = common_pb2.BrokerRole.Name(stats.role)
        writable = "writable" if stats.writable else f"not writable: {stats.not_writable_reason}"
        return (
            f"replica {broker_id}: {role} of epoch {stats.epoch}, {writable}, "
            f"up for {stats.uptime_ms} ms, appended {stats.log_appended_end}, "
            f"confirmed {stats.log_confirmed_end}, {stats.send_streams} send streams, "
            f"{stats.pull_streams} pull streams"
        )
