"""Messages of official clients into the queues of this broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from aerobee.broker.delayed.schedule import Schedule
from aerobee.broker.edge.own.convert import host_of_peer
from aerobee.broker.sending.durability import Durability, Late
from aerobee.broker.sending.ingest import Ingest, Receipt
from aerobee.broker.sending.message_encoder import PlainBatch
from aerobee.rocketmq_api.ports import QueueRecords, Sent, Unsafe
from aerobee.runtime.clock import Clock
from aerobee.store.format.record_layout import HostAddress

HOSTS_MAX: Final = 1_024
RECALLED_MAX: Final = 10_000

_UNSAFE: Final = {
    Late.DISK: Unsafe.DISK,
    Late.REPLICAS: Unsafe.REPLICAS,
    Late.NO_REPLICA: Unsafe.NO_REPLICA,
}


class _Sending(NamedTuple):
    """What one call sends, and who waits for it."""

    batches: list[PlainBatch]
    deadline_s: float
    told: Callable[[list[Sent] | Exception], None]
    has_gone: Callable[[], bool]
    """Whether the caller has left: before its messages are accepted, it has sent nothing."""


class OwnQueues:
    """Translates for Ingest, and waits until the messages are safe."""

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
        self._schedule = schedule
        self._recalled: dict[str, None] = {}
        """The last handles of recalled messages: a client may ask again."""
        self._ingest = ingest
        self._durability = durability
        self._clock = clock
        self._waiting: list[_Sending] = []
        """What was sent in this turn of the loop."""
        self._hosts: dict[str, HostAddress] = {}
        """Cached: parsing an address takes 6 us."""

    @property
    def is_gathering(self) -> bool:
        """See the port."""
        return bool(self._waiting)

    def host_of(self, peer: str) -> HostAddress:
        host = self._hosts.get(peer)
        if host is None:
            if len(self._hosts) >= HOSTS_MAX:
                self._hosts.clear()
            host = self._hosts[peer] = host_of_peer(peer)
        return host

    async def recall(self, recall_handle: str) -> None:
        """See the port."""
        if recall_handle in self._recalled:
            return
        await self._schedule.recall(recall_handle)
        while len(self._recalled) >= RECALLED_MAX:
            del self._recalled[next(iter(self._recalled))]
        self._recalled[recall_handle] = None

    def send(
        self, topic: str, parts: Sequence[QueueRecords], timeout_ms: int
    ) -> asyncio.Future[list[Sent]]:
        """See the port."""
        sent: asyncio.Future[list[Sent]] = asyncio.get_running_loop().create_future()

        def told(result: list[Sent] | Exception) -> None:
            if sent.done():
                return
            if isinstance(result, Exception):
                sent.set_exception(result)
            else:
                sent.set_result(result)

        self._send(topic, parts, timeout_ms, told, sent.done)
        return sent

    def send_then(
        self,
        topic: str,
        parts: Sequence[QueueRecords],
        timeout_ms: int,
        told: Callable[[list[Sent] | Exception], None],
    ) -> None:
        """See the port."""
        self._send(topic, parts, timeout_ms, told, _stays)

    def _send(
        self,
        topic: str,
        parts: Sequence[QueueRecords],
        timeout_ms: int,
        told: Callable[[list[Sent] | Exception], None],
        has_gone: Callable[[], bool],
    ) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._accept_all)
        batches = [
            PlainBatch(
                topic,
                queue_id,
                b"".join(records),
                list(map(len, records)) if sizes is None else sizes,
                timeout_ms,
                is_half=is_half,
            )
            for queue_id, records, is_half, sizes in parts
        ]
        deadline_s = self._clock.monotonic_s() + timeout_ms / 1_000
        self._waiting.append(_Sending(batches, deadline_s, told, has_gone))

    def _accept_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        waiting = [each for each in waiting if not each.has_gone()]
        try:
            receipts = iter(self._ingest.accept([one for each in waiting for one in each.batches]))
        except Exception as error:
            for each in waiting:
                each.told(error)
            return
        for each in waiting:
            self._await_safe(each, list(islice(receipts, len(each.batches))))

    def _await_safe(self, sending: _Sending, receipts: list[Receipt]) -> None:
        wait_end = max([receipt.wait_end for receipt in receipts])
        if not wait_end:
            sending.told([_sent(receipt) for receipt in receipts])
            return
        acknowledged = self._durability.acknowledged

        def told(in_time: bool) -> None:
            if not in_time:
                for receipt in receipts:
                    if receipt.wait_end > acknowledged.end:
                        receipt.late = self._durability.why_late(receipt.wait_end)
            sending.told([_sent(receipt) for receipt in receipts])

        acknowledged.add(wait_end, sending.deadline_s, told)


def _stays() -> bool:
    return False


def _sent(receipt: Receipt) -> Sent:
    if receipt.error is not None:
        return Sent(receipt.error)
    unsafe = None if receipt.late is None else _UNSAFE[receipt.late]
    return Sent(
        None,
        receipt.base_queue_offset,
        receipt.deliver_ms,
        unsafe,
        receipt.transaction_id,
        receipt.base_physical_offset,
    )
