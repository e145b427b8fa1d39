"""Batches that came back wait before they go again, and go no more once their time is over."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.accumulator import Batch
from aerobee.producer_client.retries import Retries, RetryOwner
from aerobee.producer_client.selector import LatencyTable, RoundRobin
from aerobee.producer_client.turns import QueueTurns
from aerobee.runtime import errors
from aerobee.runtime.clock import ManualClock, system_random


class Owner:
    """A producer that notes what becomes of its batches."""

    def __init__(self) -> None:
        self.submitted: list[Batch] = []
        self.ended: dict[Batch, errors.AerobeeError] = {}

    def has(self, batch: Batch) -> bool:
        return batch not in self.ended

    def submit(self, batch: Batch) -> None:
        self.submitted.append(batch)

    def end(self, batch: Batch, error: errors.AerobeeError) -> None:
        self.ended[batch] = error


async def test_a_batch_whose_time_ends_in_its_pause_is_not_sent_again() -> None:
    clock, owner = ManualClock(), Owner()
    batches = [
        Batch(
            MessageQueue("orders", "broker-a", 0),
            opened_s=clock.monotonic_s(),
            born_timestamp_ms=0,
            timeout_ms=timeout_ms,
            is_pinned=True,
        )
        for timeout_ms in (60_000, 180_000)
    ]
    connection = SimpleNamespace(
        clock=clock, random=system_random(), routes=SimpleNamespace(cached=lambda _: None)
    )
    async with asyncio.TaskGroup() as tasks:
        retries = Retries(
            cast(ClusterConnection, connection),
            tasks,
            QueueTurns(),
            RoundRobin(LatencyTable()),
            cast(RetryOwner, owner),
        )
        retries.begin(batches, errors.Busy("", retry_after_ms=20), refreshes_route=False)
        await asyncio.sleep(0)
        # Timers of the loop know nothing of it: the process was stopped for a minute, say.
        clock.advance_ms(60_000)
    assert [type(owner.ended.get(batch)) for batch in batches] == [
        errors.DeadlineExceeded,
        type(None),
    ]
    assert owner.submitted == batches[1:]
