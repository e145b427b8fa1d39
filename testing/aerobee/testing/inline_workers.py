"""Jobs done at once on the loop instead of on threads, so that a cluster behaves the same each
time.

While the disk hangs they wait in order.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from aerobee.store.flush.work_thread import Done, Post
from aerobee.testing.node_disk import DiskFaults

T = TypeVar("T")


class InlineWorkers:
    """The `Workers` of one life of a broker."""

    def __init__(self, faults: DiskFaults) -> None:
        self._faults = faults
        self._held: list[Callable[[], None]] = []

    def pool(self, name: str, threads: int) -> Executor:
        return InlinePool(self)

    def worker(self, name: str, post: Post, done: Done[Any]) -> _InlineWorker:
        return _InlineWorker(self, post, done)

    def run(self, work: Callable[[], None]) -> None:
        """Now, or once the disk answers."""
        if self._faults.is_hung:
            self._held.append(work)
        else:
            work()

    def release(self) -> None:
        """The disk answers again, or the process is dead and its jobs find that out."""
        held, self._held = self._held, []
        for work in held:
            work()


class InlinePool(Executor):
    """Its jobs are done when they are submitted, or held by the disk; never by a thread."""

    def __init__(self, workers: InlineWorkers) -> None:
        self._workers = workers

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._workers.run(work)
        return future


class _InlineWorker:
    """After the first error it does no more, like the thread."""

    def __init__(self, workers: InlineWorkers, post: Post, done: Done[Any]) -> None:
        self._workers = workers
        self._post = post
        self._done = done
        self._has_failed = False

    def start(self) -> None:
        """There is no thread."""

    def submit(self, work: Any) -> None:
        def run() -> None:
            if self._has_failed:
                return
            failure: BaseException | None = None
            try:
                work.run()
            except BaseException as error:
                failure = error
                self._has_failed = True
            self._post(lambda: self._done(work, failure))

        self._workers.run(run)

    def close(self) -> None:
        """Everything is already done."""
