"""Who does what waits for the disk: threads, or what a test puts in their place."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from aerobee.broker.flush.work_thread import Done, Post, Work, WorkThread


class Worker(Protocol):
    """Does works in order; see `WorkThread`."""

    def start(self) -> None: ...

    def submit(self, work: Any) -> None: ...

    def close(self) -> None: ...


class Workers(Protocol):
    """Makes them, for one broker."""

    def pool(self, name: str, threads: int) -> Executor:
        """Of works without an order."""
        ...

    def worker(self, name: str, post: Post, done: Done[Any]) -> Worker:
        """Of works in order; `done` is called through `post`."""
        ...


class DiskWorkers(NamedTuple):
    """Of one broker: two pools, so that neither waits for the other, and who makes the rest."""

    reads: Executor
    files: Executor
    ordered: Workers


class Threads:
    """As a broker has them."""

    def pool(self, name: str, threads: int) -> Executor:
        return ThreadPoolExecutor(threads, thread_name_prefix=name)

    def worker(self, name: str, post: Post, done: Done[Any]) -> Worker:
        worker: WorkThread[Work] = WorkThread(name, post, done)
        return worker
