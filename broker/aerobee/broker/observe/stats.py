"""What the broker has done and its condition: one frozen view for administration, tests, logs."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

from aerobee.broker.counters import Counters
from aerobee.broker.replication.statistics import ReplicationStatistics
from aerobee.store.engine.statistics import StoreStatistics

PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True, slots=True)
class ProcessStatistics:
    """What the operating system says about this process."""

    cpu_seconds: float
    resident_bytes: int


def process_statistics() -> ProcessStatistics:
    """CPU time of all threads since the start, and resident memory now."""
    times = os.times()
    with open("/proc/self/statm", "rb") as file:
        resident_pages = int(file.read().split()[1])
    return ProcessStatistics(times.user + times.system, resident_pages * PAGE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatistics:
    """The broker at one moment."""

    is_master: bool
    epoch: int
    version: str
    uptime_ms: int
    flush_mode: str
    is_writable: bool
    not_writable_reason: str
    topics: int
    groups: int
    members: int
    loop_delay_p99_ms: float
    counters: Counters
    store: StoreStatistics
    replication: ReplicationStatistics
    process: ProcessStatistics
