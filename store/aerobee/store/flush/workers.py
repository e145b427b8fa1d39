"""Who runs the works that wait for the disk: threads, or a test's replacement."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from aerobee.store.flush.work_thread import Done, Post, Work, WorkThread


class Worker(Protocol):
    """Runs works in order; see `WorkThread`."""

    def start(self) -> None: ...

    def submit(self, work: Any) -> None: ...

    def close(self) -> None: ...


class Workers(Protocol):
    """Makes workers and pools for one broker."""

    def pool(self, name: str, threads: int) -> Executor:
        """A pool for works without an order."""
        ...

    def worker(self, name: str, post: Post, done: Done[Any]) -> Worker:
        """A worker for works in order; `done` is called through `post`."""
        ...


class DiskWorkers(NamedTuple):
    """One broker's: two pools, so that neither waits for the other, and the maker of the rest."""

    reads: Executor
    files: Executor
    ordered: Workers


class Threads:
    """The real ones, as brokers use."""

    def pool(self, name: str, threads: int) -> Executor:
        return ThreadPoolExecutor(threads, thread_name_prefix=name)

    def worker(self, name: str, post: Post, done: Done[Any]) -> Worker:
        worker: WorkThread[Work] = WorkThread(name, post, done)
        return worker
