"""What `aerobee broker drain` does: see that a broker is not a master before it is stopped.

Only the broker itself is asked, so it works in a pod that knows nothing of nameservers. That the
successor acts is known when the former master copies from it: a replica gives its log to others
only while it may act.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aerobee.cli.failures import FAILED, Failure
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import GET_STATS, HAND_OVER
from aerobee.rpc.client_channel import DialledTls
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock, SystemClock
from aerobee.v1 import broker_pb2, common_pb2

POLL_S = 0.05
RETRY_S = 0.3
ANSWER_TIMEOUT_MS = 2_000
REOPENING_S = 3.0
"""A broker that does not answer may be opening its folder again, as a slave."""
COMPANY_S = 3.0
"""A replica that runs connects within this; longer than an attempt and its back-off."""


@dataclass(frozen=True, slots=True)
class Drained:
    """How it went."""

    what: str
    master_id: int | None = None
    """The successor; None: nothing had to be handed over."""
    epoch: int = 0
    paused_ms: int = 0

    def __str__(self) -> str:
        return self.what

    def document(self) -> dict[str, object]:
        if self.master_id is None:
            return {"handedOver": False, "what": self.what}
        return {
            "handedOver": True,
            "masterId": self.master_id,
            "epoch": self.epoch,
            "pausedMs": self.paused_ms,
        }


async def drain_broker(
    address: str,
    *,
    timeout_ms: int,
    clock: Clock | None = None,
    tls: DialledTls | None = None,
) -> Drained:
    """Hand over what the broker at host:port leads.

    Raises:
        Failure: no replica could take over in time.
        Unreachable, DeadlineExceeded: the broker does not answer.
    """
    clock = clock or SystemClock()
    channels = Channels(tls=tls)
    try:
        return await _Drain(address, channels, clock, timeout_ms).run()
    finally:
        await channels.close()


class _Drain:
    def __init__(self, address: str, channels: Channels, clock: Clock, timeout_ms: int) -> None:
        self._address = address
        self._channels = channels
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._end_s = clock.monotonic_s() + timeout_ms / 1_000

    async def run(self) -> Drained:
        stats = await self._stats(lambda _: True, min(REOPENING_S, self._left_s()))
        if stats.role != common_pb2.MASTER:
            return Drained("a slave; nothing to hand over")
        if not stats.replicas:
            return Drained("the only replica of its group; nothing to hand over")
        if not _has_company(stats) and not await self._gets_company():
            return Drained("no other replica is connected; none could take over")
        done = await self._hand_over()
        if done is None:
            return Drained("is no longer master; nothing to hand over")
        await self._stats(_follows_another, self._left_s())
        return Drained(
            f"replica {done.master_id} is master in epoch {done.epoch}; writes paused for "
            f"{done.paused_ms} ms",
            done.master_id,
            done.epoch,
            done.paused_ms,
        )

    async def _gets_company(self) -> bool:
        """Whether a replica connects soon: one may just come back from a restart."""
        end_s = self._clock.monotonic_s() + min(COMPANY_S, self._left_s())
        while self._clock.monotonic_s() < end_s:
            await asyncio.sleep(RETRY_S)
            stats = await self._stats(lambda _: True, self._left_s())
            if stats.role != common_pb2.MASTER or _has_company(stats):
                return True
        return False

    async def _hand_over(self) -> broker_pb2.HandOverResponse | None:
        """None: another request has already taken the role of master from it."""
        while True:
            left_ms = max(1, int(self._left_s() * 1_000))
            try:
                return await self._channels.call(
                    self._address,
                    HAND_OVER,
                    broker_pb2.HandOverRequest(timeout_ms=left_ms),
                    timeout_ms=left_ms + ANSWER_TIMEOUT_MS,
                )
            except (errors.InvalidArgument, errors.Busy, errors.DeadlineExceeded) as error:
                # No other replica is in sync, or another hand-over is under way: that may change.
                reason: errors.AerobeeError = error
            except (errors.NotMaster, errors.Unreachable) as error:
                reason = error
                stats = await self._stats(lambda _: True, self._left_s())
                if stats.role != common_pb2.MASTER:
                    return None
            if self._left_s() <= RETRY_S:
                raise Failure(
                    f"{self._address}: no replica took over within {self._timeout_ms / 1_000:g} s:"
                    f" {reason}",
                    exit_code=FAILED,
                ) from reason
            await asyncio.sleep(RETRY_S)

    async def _stats(
        self, holds: Callable[[broker_pb2.BrokerStats], bool], patience_s: float
    ) -> broker_pb2.BrokerStats:
        """Once the broker says what is hoped for. Raises Unreachable, DeadlineExceeded, Failure."""
        end_s = self._clock.monotonic_s() + patience_s
        while True:
            try:
                stats = await self._channels.call(
                    self._address,
                    GET_STATS,
                    broker_pb2.GetStatsRequest(),
                    timeout_ms=ANSWER_TIMEOUT_MS,
                )
            except (errors.Unreachable, errors.DeadlineExceeded, errors.ShuttingDown):
                if self._clock.monotonic_s() >= end_s:
                    raise
            else:
                if holds(stats):
                    return stats
                if self._clock.monotonic_s() >= end_s:
                    raise Failure(
                        f"{self._address}: handed over, but it did not copy from its successor "
                        f"within {self._timeout_ms / 1_000:g} s: {stats.slave.trouble or 'wait'}",
                        exit_code=FAILED,
                    )
            await asyncio.sleep(POLL_S)

    def _left_s(self) -> float:
        return max(0.0, self._end_s - self._clock.monotonic_s())


def _has_company(stats: broker_pb2.BrokerStats) -> bool:
    return any(one.connected for one in stats.replicas)


def _follows_another(stats: broker_pb2.BrokerStats) -> bool:
    """Or is master again, if the successor failed: then an operator has to look."""
    return stats.role == common_pb2.MASTER or stats.slave.connected
