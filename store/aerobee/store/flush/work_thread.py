"""One named thread that runs the works it is given, in order, and reports back.

Owns: nothing but its queue. A work's result or error is posted to the loop, never kept. After the
first error the thread does no more work, because a disk that has failed once is not used again.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Generic, Protocol, TypeVar


class Work(Protocol):
    """Something to do off the loop; it touches no state of the loop."""

    def run(self) -> None: ...


AnyWork = TypeVar("AnyWork", bound=Work)

Done = Callable[[AnyWork, BaseException | None], None]
Post = Callable[[Callable[[], None]], object]


class WorkThread(Generic[AnyWork]):
    """`submit` and `close` belong to the loop; `done` is called there through `post`."""

    def __init__(self, name: str, post: Post, done: Done[AnyWork]) -> None:
        self._post = post
        self._done = done
        self._works: SimpleQueue[AnyWork | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: AnyWork) -> None:
        self._works.put(work)

    def close(self) -> None:
        """Let the thread finish the works it was given, and wait for its end."""
        self._works.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            error: BaseException | None = None
            try:
                work.run()
            except BaseException as raised:
                error = raised
            self._report(work, error)
            if error is not None:
                return

    def _report(self, work: AnyWork, error: BaseException | None) -> None:
        self._post(lambda: self._done(work, error))
