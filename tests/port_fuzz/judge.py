"""What others felt of an attack, and what is left of it."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.port_fuzz.clerk import Waits
from tests.port_fuzz.watchman import Log, Seen

FELT_S_MAX: Final = 0.1
"""How much longer a send or a delivery may take than before the attack, without what the machine
itself took."""
GROWTH_BYTES_MAX: Final = 128 << 20
"""Of a process's own memory, from before the attack until some time after it. Peers may make it
hold much more for a while, and of what is freed the C library keeps what lies between."""
LOG_BYTES_PER_S_MAX: Final = 64 << 10
"""Of all processes together: as many lines of an event as `log.repeats_per_s_max` lets through, of
a handful of events."""
LOG_BYTES_FREE: Final = 1 << 20
WATCHMAN: Final = "watchman"


class Machine:
    """How long the processes on a message's way waited for a processor. Between two looks of the
    clerk a message is with one of them, so the longest wait counts, and no other."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._sums: dict[tuple[str, ...], list[float]] = {}

    def late_s(self, names: tuple[str, ...], begin_s: float, end_s: float) -> float:
        sums = self._sums.get(names) or self._sums.setdefault(names, self._summed(names))
        return self._until(sums, end_s) - self._until(sums, begin_s)

    def _summed(self, names: tuple[str, ...]) -> list[float]:
        series = [waited_s for name, waited_s in self._waits.waited_s.items() if name in names]
        steps = [0.0] * len(self._waits.at_s)
        for waited_s in series:
            for at in range(1, len(steps)):
                steps[at] = max(steps[at], waited_s[at] - waited_s[at - 1])
        return list(itertools.accumulate(steps))

    def _until(self, sums: list[float], at_s: float) -> float:
        """Between two looks in proportion."""
        looks = self._waits.at_s
        after = bisect.bisect_left(looks, at_s)
        if after == 0 or after == len(looks):
            return sums[min(after, len(sums) - 1)] if sums else 0.0
        share = (at_s - looks[after - 1]) / (looks[after] - looks[after - 1])
        return sums[after - 1] + share * (sums[after] - sums[after - 1])


@dataclass(frozen=True)
class Felt:
    """Seconds of one kind in one watch, without those in which a process on a message's way waited
    for a processor: the watchman, and both brokers of the replica set."""

    count: int
    p50_s: float
    p999_s: float
    max_s: float
    raw_p999_s: float
    raw_max_s: float
    """With these."""

    def __str__(self) -> str:
        ms = [f"{1_000 * each:.1f}" for each in (self.p50_s, self.p999_s, self.max_s)]
        raw = [f"{1_000 * each:.1f}" for each in (self.raw_p999_s, self.raw_max_s)]
        return (
            f"{self.count} messages, p50 {ms[0]} ms, p99.9 {ms[1]} ms, max {ms[2]} ms "
            f"(and with waits for a processor: p99.9 {raw[0]} ms, max {raw[1]} ms)"
        )


Span = tuple[float, float, tuple[str, ...]]
"""Begin, end, and the processes on its way."""


def felt(spans: Sequence[Span], machine: Machine) -> Felt:
    raw = sorted(end_s - begin_s for begin_s, end_s, _ in spans)
    own = sorted(
        max(0.0, end_s - begin_s - machine.late_s(names, begin_s, end_s))
        for begin_s, end_s, names in spans
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
    seen = [each for each in log.messages if each.watch == name and each.stored_s]
    sends: list[Span] = []
    deliveries: list[Span] = []
    for one in seen:
        way = (WATCHMAN, one.broker, f"{one.broker}-1")
        sends.append((one.sent_s, one.stored_s, way))
        if one.received_s:
            deliveries.append((one.sent_s, one.received_s, way))
    return Watch(felt(sends, machine), felt(deliveries, machine))


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
