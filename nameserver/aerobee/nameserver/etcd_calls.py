"""How calls to etcd are going: what a nameserver reports about it to operators.

Owns: whether etcd answers, whether it accepts writes, and how fast it is. An answer turns from yes
to no, or back, once it has stayed the same for a while: a single call, lost with a dead member or
answered, says little.
"""

from __future__ import annotations

import logging
import statistics
from collections import deque

from aerobee.nameserver.etcd_connection import OutOfSpace
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import RegistryUnavailable
from aerobee.runtime.log import log_event
from aerobee.runtime.metrics.histogram import LATENCY_S, Histogram

log = logging.getLogger(__name__)

HELD_S = 3.0
"""How long an answer must stay the same before it counts."""
SLOW_S = 0.5
SLOW_CALLS = 8
SLOW = "etcd is slow"
RECENT_S = 30.0

WAITING = "elections, changes of in-sync sets, new brokers, topics and users wait"
"""What cannot continue without writes. Registered brokers stay registered: a renewal is not a
write."""


class Steady:
    """A yes or no that has held for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted: bool | None = None
        self._newest: bool | None = None
        self._since_s = 0.0

    def note(self, is_so: bool) -> None:
        if is_so != self._newest:
            self._count_if_held()
            self._newest, self._since_s = is_so, self._clock.monotonic_s()
        if self._counted is None:
            self._counted = is_so
        self._count_if_held()

    @property
    def value(self) -> bool | None:
        """None before the first answer."""
        self._count_if_held()
        return self._counted

    def _count_if_held(self) -> None:
        if self._newest is not None and self._clock.monotonic_s() - self._since_s >= HELD_S:
            self._counted = self._newest


class EtcdCalls:
    """On the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers = Steady(clock)
        self._takes_writes = Steady(clock)
        self._failure = ""
        self._recent: deque[tuple[float, float]] = deque(maxlen=SLOW_CALLS)
        self._told = ""
        self.latency = Histogram(LATENCY_S)
        """Of calls that etcd answered, in seconds."""
        self.failures = 0
        """Calls that it refused or did not answer."""

    @property
    def is_reachable(self) -> bool | None:
        """Whether it answers, even with a refusal; None before the first call."""
        return self._answers.value

    @property
    def is_writable(self) -> bool | None:
        """Whether it accepts writes; None before the first one."""
        return self._takes_writes.value

    @property
    def refuses_writes(self) -> bool:
        """It refused the last write, but answers otherwise."""
        return self._takes_writes.value is False and self._answers.value is not False

    def answered(self, elapsed_s: float, *, is_write: bool) -> None:
        self.latency.observe(elapsed_s)
        self._recent.append((self._clock.monotonic_s(), elapsed_s))
        self._answers.note(True)
        if is_write:
            self._takes_writes.note(True)
        self._tell()

    def failed(self, error: RegistryUnavailable, *, is_write: bool = False) -> None:
        """It did not answer, or could not do what was asked."""
        self.failures += 1
        self._failure = str(error)
        is_out_of_space = isinstance(error, OutOfSpace)
        self._answers.note(is_out_of_space)
        if is_write or is_out_of_space:
            self._takes_writes.note(False)
        self._tell()

    @property
    def trouble(self) -> str:
        """What is wrong with etcd, and what waits for it; empty if nothing is."""
        if self._answers.value is False:
            return (
                f"etcd does not answer: {WAITING}; known routes are served, and masters of groups "
                f"with several replicas take no messages once their leases end ({self._failure})"
            )
        if self._takes_writes.value is False:
            return f"etcd takes no writes: {WAITING}; masters continue ({self._failure})"
        now_s = self._clock.monotonic_s()
        recent = [took_s for at_s, took_s in self._recent if now_s - at_s < RECENT_S]
        if len(recent) == SLOW_CALLS and (median_s := statistics.median(recent)) > SLOW_S:
            return (
                f"{SLOW}, a call takes {median_s:.1f} s: {WAITING.removesuffix(' wait')} "
                "take long, and leases may end although their brokers are healthy; check etcd's "
                "disks"
            )
        return ""

    def _tell(self) -> None:
        """Log one line for each change."""
        kind = self.trouble.partition(":")[0].partition(",")[0]
        if kind == self._told:
            return
        self._told = kind
        if kind:
            # A slow etcd still does all that it is asked for.
            level = logging.WARNING if kind == SLOW else logging.ERROR
            log_event(log, "etcd has a problem", level=level, reason=self.trouble)
        else:
            log_event(log, "etcd has recovered")
