"""What others felt of an attack, and what is left of it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.port_fuzz.watchman import Log, Seen

FELT_S_MAX: Final = 0.1
"""How much longer a send or a delivery may take than before the attack, without what the machine
itself took."""
GROWTH_BYTES_MAX: Final = 64 << 20
"""Of a process's own memory, from before the attack until some time after it."""
LOG_BYTES_PER_S_MAX: Final = 64 << 10
"""Of all processes together: as many lines of an event as `log.repeats_per_s_max` lets through, of
a handful of events."""
LOG_BYTES_FREE: Final = 1 << 20


class Machine:
    """When the machine let a process wait that had nothing to do but to wake up."""

    def __init__(self, late: Sequence[Sequence[float]]) -> None:
        """When it woke and how late that was, as the sleeper tells it."""
        self._woke = [at_s for at_s, _ in late]
        self._late = [late_s for _, late_s in late]

    def late_s(self, begin_s: float, end_s: float) -> float:
        """What of the time between was the machine's: all waits that touch it together."""
        first = bisect.bisect_left(self._woke, begin_s)
        total = 0.0
        for at in range(first, len(self._woke)):
            slept_until_s = self._woke[at] - self._late[at]
            if slept_until_s >= end_s:
                break
            total += min(self._woke[at], end_s) - max(slept_until_s, begin_s)
        return total

    def worst_s(self, begin_s: float, end_s: float) -> float:
        first = bisect.bisect_left(self._woke, begin_s)
        last = bisect.bisect_right(self._woke, end_s)
        return max(self._late[first:last], default=0.0)


@dataclass(frozen=True)
class Felt:
    """Seconds of one kind in one watch, without those of the machine."""

    count: int
    p50_s: float
    p999_s: float
    max_s: float
    raw_p999_s: float
    raw_max_s: float
    """With those of the machine."""

    def __str__(self) -> str:
        ms = [f"{1_000 * each:.1f}" for each in (self.p50_s, self.p999_s, self.max_s)]
        raw = [f"{1_000 * each:.1f}" for each in (self.raw_p999_s, self.raw_max_s)]
        return (
            f"{self.count} messages, p50 {ms[0]} ms, p99.9 {ms[1]} ms, max {ms[2]} ms "
            f"(with the machine's own delays: p99.9 {raw[0]} ms, max {raw[1]} ms)"
        )


def felt(spans: Sequence[tuple[float, float]], machine: Machine) -> Felt:
    """Of begins and ends."""
    raw = sorted(end_s - begin_s for begin_s, end_s in spans)
    own = sorted(
        max(0.0, end_s - begin_s - machine.late_s(begin_s, end_s)) for begin_s, end_s in spans
    )
    return Felt(
        len(spans), _at(own, 0.5), _at(own, 0.999), own[-1] if own else 0.0,
        _at(raw, 0.999), raw[-1] if raw else 0.0,
    )  # fmt: skip


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


@dataclass(frozen=True)
class Watch:
    """One watch of the watchman."""

    sends: Felt
    deliveries: Felt


def watch(log: Log, name: str, machine: Machine) -> Watch:
    seen = [each for each in log.messages if each.watch == name]
    return Watch(
        felt([(one.sent_s, one.stored_s) for one in seen if one.stored_s], machine),
        felt([(one.sent_s, one.received_s) for one in seen if one.received_s], machine),
    )


def complaints_of(before: Watch, during: Watch) -> list[str]:
    found = []
    for what, quiet, loud in (
        ("sends", before.sends, during.sends),
        ("deliveries", before.deliveries, during.deliveries),
    ):
        for figure, level, came in (
            ("p99.9", quiet.p999_s, loud.p999_s),
            ("max", quiet.max_s, loud.max_s),
        ):
            if came - level > FELT_S_MAX:
                found.append(
                    f"{what}: {figure} is {1_000 * came:.1f} ms, {1_000 * (came - level):.1f} ms "
                    "above its level before the attack"
                )
    return found


def lost_or_doubled(messages: Sequence[Seen], errors: Sequence[str]) -> list[str]:
    """Of what was acknowledged; what was not may be there or not, but once."""
    lost = [at for at, one in enumerate(messages) if one.stored_s and not one.times]
    doubled = [at for at, one in enumerate(messages) if one.times > 1]
    found = []
    if lost:
        found.append(f"{len(lost)} messages are lost, the first is {lost[0]}")
    if doubled:
        found.append(f"{len(doubled)} messages came twice, the first is {doubled[0]}")
    if errors:
        found.append(f"{len(errors)} sends failed, the first: {errors[0]}")
    return found
