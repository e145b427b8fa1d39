"""The tier as a feature: uploads while this replica is master, and a hold on every replica.

Without `tier.url` it does nothing at all.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aerobee.broker.config import BrokerConfig
from aerobee.broker.features import Feature, Task
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.replication.roles import Roles
from aerobee.broker.retention.holds import Hold
from aerobee.broker.sending.durability import Durability
from aerobee.broker.tier.hold import TierHold
from aerobee.broker.tier.places import open_tier
from aerobee.broker.tier.uploader import Uploader
from aerobee.runtime.clock import Clock
from aerobee.runtime.metrics.families import AnyFamily, one_counter, one_gauge
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.flush.flush_thread import FlushThread
from aerobee.store.flush.workers import DiskWorkers

_THREADS = 2
"""One for an upload, which may take long, and one for questions."""


class Parts(Protocol):
    """What the tier needs of the broker."""

    config: BrokerConfig
    clock: Clock
    chance: random.Random
    disk: Disk
    store: MessageStore
    roles: Roles
    durability: Durability
    flush: FlushThread
    workers: DiskWorkers


class Tier(Feature):
    """On the loop, while `run` runs."""

    def __init__(self, parts: Parts, opened: Any) -> None:
        config = parts.config.tier
        self.uploader: Uploader | None = None
        self.holds: Sequence[Hold] = ()
        if not config.is_on:
            return
        self._threads = parts.workers.ordered.pool("tier", _THREADS)
        objects = open_tier(
            config.url,
            cluster=parts.config.cluster,
            broker_name=parts.config.broker_name,
            clock=parts.clock,
        )
        self.uploader = Uploader(
            objects,
            parts.disk,
            parts.store,
            parts.roles,
            parts.clock,
            parts.chance,
            config,
            self._threads,
            segment_bytes=parts.config.store.segment_bytes,
        )
        parts.durability.listen(self.uploader.look)
        parts.flush.on_flushed(self.uploader.look)
        self.holds = (
            TierHold(objects, parts.disk, parts.roles, parts.clock, config, self._threads),
        )

    # ------------------------------------------------------------------------------ the term

    def begin(self, term: MasterTerm) -> None:
        if self.uploader is not None:
            self.uploader.begin(term)

    async def leave(self) -> None:
        if self.uploader is not None:
            await self.uploader.leave()

    def resume(self) -> None:
        if self.uploader is not None:
            self.uploader.resume()

    def end(self) -> None:
        if self.uploader is not None:
            self.uploader.end()

    # ------------------------------------------------------------------------------ the run

    def tasks(self) -> Mapping[str, Task]:
        return {} if self.uploader is None else {"tier": self.run}

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        assert self.uploader is not None
        try:
            await self.uploader.run()
        finally:
            # A call that waits for the network is left to end by itself.
            self._threads.shutdown(wait=False, cancel_futures=True)

    def wake(self) -> None:
        """Something that failed may work now: do not wait until it is tried again."""
        if self.uploader is not None:
            self.uploader.wake()

    @property
    def is_resting(self) -> bool:
        """Nothing is being uploaded."""
        return self.uploader is None or self.uploader.is_resting

    async def figures(self) -> Sequence[AnyFamily]:
        uploader = self.uploader
        if uploader is None:
            return ()
        figures: list[AnyFamily] = [
            one_counter(
                "aerobee_tier_uploaded_segments_total",
                "Log segments that this broker has uploaded to the tier.",
                uploader.uploaded_segments,
            ),
            one_counter(
                "aerobee_tier_uploaded_bytes_total",
                "Bytes of the log that this broker has uploaded to the tier.",
                uploader.uploaded_bytes,
            ),
            one_counter(
                "aerobee_tier_failures_total",
                "Failed attempts to upload to the tier.",
                uploader.failures,
            ),
        ]
        if (waiting := uploader.waiting_segments) is not None:
            figures.append(
                one_gauge(
                    "aerobee_tier_waiting_segments",
                    "Full log segments of a master that are not known to be in the tier.",
                    waiting,
                )
            )
        return figures
