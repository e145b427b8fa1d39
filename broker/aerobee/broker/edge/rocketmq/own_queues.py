"""Messages of official clients into the queues of this broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
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
        self._waiting: list[tuple[list[SingleBatch], asyncio.Future[list[Receipt]]]] = []
        """What this turn of the loop has sent."""
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
        receipts = await self._accepted(batches)
        return [await self._sent(each, deadline_s) for each in receipts]

    async def _accepted(self, batches: list[SingleBatch]) -> list[Receipt]:
        """What calls of one turn of the loop send is stored at its end, together."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._accept_all)
        receipts: asyncio.Future[list[Receipt]] = loop.create_future()
        self._waiting.append((batches, receipts))
        return await receipts

    def _accept_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        # Who has gone meanwhile has sent nothing.
        waiting = [each for each in waiting if not each[1].done()]
        try:
            receipts = iter(self._ingest.accept([one for some, _ in waiting for one in some]))
        except Exception as error:
            for _, told in waiting:
                told.set_exception(error)
            return
        for batches, told in waiting:
            told.set_result(list(islice(receipts, len(batches))))

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
