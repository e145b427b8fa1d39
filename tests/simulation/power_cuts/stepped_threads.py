"""Threads that run one at a time, and switch only between two disk operations.

The loop and its worker threads share only the disk, so every interleaving that matters is one of
their disk operations. Here a seed decides it: the loop lets a worker do some operations and then
waits for its turn again; while the loop itself uses the disk, workers may run in between. They are
real threads, because the work of the store is written as plain calls; never two at once, so that a
seed gives the same run every time.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from aerobee.testing.simulated_disk import SimulatedDisk
from aerobee.testing.simulated_power import PowerCut


class Work(Protocol):
    """A work passed to a thread of the broker."""

    def run(self) -> None: ...


OnEnd = Callable[[BaseException | None], None]


class SteppedThread:
    """One worker: a queue of works, done in order."""

    def __init__(self, name: str, threads: SteppedThreads) -> None:
        self.name = name
        self._threads = threads
        self._go = threading.Semaphore(0)
        self._came_back = threading.Semaphore(0)
        self._queue: deque[tuple[Work, OnEnd]] = deque()
        self._ended: deque[tuple[OnEnd, BaseException | None]] = deque()
        self._operations_left = 0
        self._is_inside = False
        self._is_closing = False
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        return self._is_inside or bool(self._queue)

    def submit(self, work: Work, on_end: OnEnd) -> None:
        """`on_end` is called on the loop, by `deliver`, with the error if there was one."""
        self._queue.append((work, on_end))

    def deliver(self) -> None:
        """[loop] Report what has ended."""
        while self._ended:
            on_end, error = self._ended.popleft()
            on_end(error)

    def advance(self, operations: int) -> None:
        """[loop] Let it do this many disk operations of its current work, or finish it."""
        if not self.is_busy:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
            self._thread.start()
        self._operations_left = operations
        self._is_inside = True
        self._threads.running = self
        self._go.release()
        self._came_back.acquire()
        self._threads.running = None

    def pause_if_due(self) -> None:
        """[this thread] Before a disk operation."""
        if self._operations_left == 0:
            self._came_back.release()
            self._go.acquire()
        self._operations_left -= 1

    def abort(self) -> None:
        """[loop] The disk is dead: the running work finds out, the others never begin."""
        while self._is_inside:
            self.advance(1 << 30)
        self._queue.clear()
        self._ended.clear()

    def close(self) -> None:
        if self._thread is not None:
            self._is_closing = True
            self._go.release()
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            if self._is_closing:
                return
            work, on_end = self._queue.popleft()
            error: BaseException | None = None
            try:
                work.run()
            except BaseException as raised:  # including PowerCut: the loop must learn of it
                error = raised
            self._ended.append((on_end, error))
            self._is_inside = False
            self._came_back.release()


class SteppedThreads:
    """The workers of one broker, and whose turn it is."""

    def __init__(self, chance: random.Random, *names: str) -> None:
        self._chance = chance
        self._workers = {name: SteppedThread(name, self) for name in names}
        self.running: SteppedThread | None = None
        # How often a worker runs between two operations of the loop.
        self.intrusion = 0.0

    def __getitem__(self, name: str) -> SteppedThread:
        return self._workers[name]

    def before_step(self) -> None:
        """For `SimulatedDisk.on_step`."""
        if self.running is not None:
            self.running.pause_if_due()
        elif self.intrusion and self._chance.random() < self.intrusion:
            self.advance_one()

    def advance_one(self) -> None:
        """Let one of those with work run for a while."""
        busy = [worker for worker in self._workers.values() if worker.is_busy]
        if busy:
            self._chance.choice(busy).advance(self._chance.choice((1, 1, 2, 3, 5, 8, 1 << 30)))

    def deliver(self) -> None:
        for worker in self._workers.values():
            worker.deliver()

    def drain(self, disk: SimulatedDisk) -> None:
        """Until nothing is left to do, including follow-up work. Raises PowerCut."""
        self.deliver()
        while any(worker.is_busy for worker in self._workers.values()):
            self.advance_one()
            disk.check_power()
            self.deliver()

    def abort(self) -> None:
        for worker in self._workers.values():
            worker.abort()
        self.running = None

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


def is_power_cut(error: BaseException | None) -> bool:
    return isinstance(error, PowerCut)
