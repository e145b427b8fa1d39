"""Messages of official clients into the queues of this broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aerobee.broker.delayed.schedule import Schedule
from aerobee.broker.edge.own.convert import host_of_peer
from aerobee.broker.sending.durability import Durability, Late
from aerobee.broker.sending.ingest import Ingest, Receipt
from aerobee.broker.sending.message_encoder import SingleBatch
from aerobee.rocketmq_api.services.ports import Sent, Unsafe
from aerobee.runtime.clock import Clock
from aerobee.store_format.record_layout import HostAddress

HOSTS_MAX: Final = 1_024

_UNSAFE: Final = {
    Late.DISK: Unsafe.DISK,
    Late.REPLICAS: Unsafe.REPLICAS,
    Late.NO_REPLICA: Unsafe.NO_REPLICA,
}


class OwnQueues:
    """Translates for Ingest, and waits until what it took is safe."""

    def __init__(
        self,
        broker_name: str,
        ingest: Ingest,
        durability: Durability,
        schedule: Schedule,
        clock: Clock,
        *,
        is_master: Callable[[], bool],
        store_host_ipv6: bool,
    ) -> None:
        self.broker_name = broker_name
        self.store_host_ipv6 = store_host_ipv6
        self.is_master = is_master
        self.recall = schedule.recall
        self._ingest = ingest
        self._durability = durability
        self._clock = clock
        self._hosts: dict[str, HostAddress] = {}
        """Reading an address takes 6 us."""

    def host_of(self, peer: str) -> HostAddress:
        host = self._hosts.get(peer)
        if host is None:
            if len(self._hosts) >= HOSTS_MAX:
                self._hosts.clear()
            host = self._hosts[peer] = host_of_peer(peer)
        return host

    async def send(
        self, topic: str, records: Sequence[tuple[int, bytes]], timeout_ms: int
    ) -> list[Sent]:
        deadline_s = self._clock.monotonic_s() + timeout_ms / 1_000
        batches = [
            SingleBatch(topic, queue_id, record, (len(record),), timeout_ms, skip_wait=False)
            for queue_id, record in records
        ]
        return [await self._sent(each, deadline_s) for each in self._ingest.accept(batches)]

    async def _sent(self, receipt: Receipt, deadline_s: float) -> Sent:
        if receipt.error is not None:
            return Sent(error=receipt.error)
        unsafe = None
        if receipt.wait_end:
            late = await self._durability.wait_safe(receipt.wait_end, deadline_s)
            unsafe = None if late is None else _UNSAFE[late]
        return Sent(
            queue_offset=receipt.base_queue_offset,
            deliver_ms=receipt.deliver_ms,
            unsafe=unsafe,
        )
