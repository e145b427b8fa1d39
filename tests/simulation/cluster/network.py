"""A network that delays, loses, duplicates and splits.

Single messages may be lost, duplicated and reordered. A stream is a TCP connection: its messages
arrive in order, wait while the link is cut, and are lost only together with the stream. Cuts are
one-way: a link has a direction.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from tests.simulation.cluster.kernel import Call, Kernel, Place, Process

_DRAWS = 512


class Network:
    def __init__(self, kernel: Kernel, chance: random.Random) -> None:
        self.kernel = kernel
        self._chance = chance
        usual_s = chance.choice((0.0002, 0.001, 0.005))
        slow_share = chance.choice((0.0, 0.02, 0.1))
        slow_s = chance.choice((0.02, 0.2))
        self._delays = [
            usual_s * (0.5 + chance.random())
            + (slow_s * chance.random() if chance.random() < slow_share else 0.0)
            for _ in range(_DRAWS)
        ]
        self._draw = 0
        self.lost_share = chance.choice((0.0, 0.0, 0.02, 0.1))
        self.doubled_share = chance.choice((0.0, 0.02))
        self.blocked: set[tuple[int, int]] = set()
        self._held: dict[tuple[int, int], list[tuple[Stream, int]]] = {}

    def delay_s(self) -> float:
        self._draw = (self._draw + 1) % _DRAWS
        return self._delays[self._draw]

    def post(self, source: Place, target: Place, call: Call, *args: Any) -> None:
        """A single message to the process running at `target` when it arrives, if it does."""
        if (source.index, target.index) in self.blocked:
            return
        if self.lost_share and self._chance.random() < self.lost_share:
            return
        kernel = self.kernel
        kernel.push(kernel.now_s + self.delay_s(), target, None, call, *args)
        if self.doubled_share and self._chance.random() < self.doubled_share:
            late_s = self._chance.choice((0.001, 0.1, 1.0))
            kernel.push(kernel.now_s + self.delay_s() + late_s, target, None, call, *args)

    def hold(self, link: tuple[int, int], stream: Stream, direction: int) -> None:
        """The stream has something to send once the link is restored."""
        self._held.setdefault(link, []).append((stream, direction))

    def block(self, link: tuple[int, int]) -> None:
        self.blocked.add(link)

    def unblock(self, link: tuple[int, int]) -> None:
        self.blocked.discard(link)
        for stream, direction in self._held.pop(link, ()):
            stream.flush(direction)


class Stream:
    """One connection between two processes, opened by the first."""

    __slots__ = ("_arrival_s", "_closed", "_ends", "_held", "_network", "is_cut")

    def __init__(self, network: Network, opener: Process, other: Process) -> None:
        self._network = network
        self._ends = (opener, other)
        self._arrival_s = [0.0, 0.0]
        self._held: tuple[deque[tuple[Call, tuple[Any, ...]]], ...] = (deque(), deque())
        self._closed = [False, False]
        self.is_cut = False
        for end in self._ends:
            end.streams = [one for one in end.streams if not one.is_cut and one.is_open(end)]
            end.streams.append(self)

    def is_open(self, end: Process) -> bool:
        """As far as this end knows."""
        return not self._closed[0 if end is self._ends[0] else 1]

    def other(self, end: Process) -> Process:
        return self._ends[1 if end is self._ends[0] else 0]

    def send(self, sender: Process, call: Call, *args: Any) -> None:
        """Deliver `call` to the other end; does nothing once the sender has closed."""
        direction = 0 if sender is self._ends[0] else 1
        if self._closed[direction] or self.is_cut:
            return
        held = self._held[direction]
        network = self._network
        link = (sender.place.index, self._ends[1 - direction].place.index)
        if held or link in network.blocked:
            if not held:
                network.hold(link, self, direction)
            held.append((call, args))
            return
        self._push(direction, call, args)

    def close(self, closer: Process) -> None:
        """The other end is told after everything sent before."""
        direction = 0 if closer is self._ends[0] else 1
        if not self._closed[direction]:
            self.send(closer, Process.stream_ended, self)
            self._closed[direction] = True

    def cut(self, opener_hears_s: float, other_hears_s: float) -> None:
        """The connection breaks: what is in flight is lost, and each end learns of it later."""
        self.is_cut = True
        kernel = self._network.kernel
        for end, delay_s in zip(self._ends, (opener_hears_s, other_hears_s), strict=True):
            kernel.push(kernel.now_s + delay_s, end.place, end, _hear_end, self)

    def mark_closed(self, end: Process) -> bool:
        """This end learns that the stream is over; returns whether that is news."""
        direction = 0 if end is self._ends[0] else 1
        is_news = not self._closed[direction]
        self._closed[direction] = True
        return is_news

    def flush(self, direction: int) -> None:
        """The link is restored."""
        held = self._held[direction]
        while held and not self.is_cut:
            call, args = held.popleft()
            self._push(direction, call, args)
        held.clear()

    def _push(self, direction: int, call: Call, args: tuple[Any, ...]) -> None:
        network = self._network
        kernel = network.kernel
        arrival_s = kernel.now_s + network.delay_s()
        arrival_s = max(self._arrival_s[direction], arrival_s)
        self._arrival_s[direction] = arrival_s
        receiver = self._ends[1 - direction]
        kernel.push(arrival_s, receiver.place, receiver, _deliver, self, direction, call, args)


def _deliver(
    receiver: Process, stream: Stream, direction: int, call: Call, args: tuple[Any, ...]
) -> None:
    if stream.is_cut or stream._closed[1 - direction]:
        return
    if call is Process.stream_ended:
        _hear_end(receiver, stream)
    else:
        call(receiver, stream, *args)


def _hear_end(receiver: Process, stream: Stream) -> None:
    if stream.mark_closed(receiver):
        receiver.stream_ended(stream)
