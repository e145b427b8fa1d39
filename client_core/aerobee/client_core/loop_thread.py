"""A thread with its own event loop, in which an asynchronous client lives for blocking callers.

Owns: the thread, from `open` to `close`; any number of threads may call. Everything that a blocking
client adds to its asynchronous twin is here.
Invariants: a call ends when the client does, with the reason; a child of `fork` is refused at once.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from aerobee.client_core.short_tracebacks import shortened
from aerobee.cluster_view.own_process import OwnProcess
from aerobee.runtime import errors
from aerobee.runtime.event_loop import new_event_loop

T = TypeVar("T")
Client = TypeVar("Client", bound=AbstractAsyncContextManager[Any])


class LoopThread(Generic[Client]):
    """Calls an asynchronous client from code without an event loop."""

    def __init__(self, what: str, make: Callable[[], Client]) -> None:
        """`what` is opened, in the user's terms; `make` is called in the thread."""
        self._what = what
        self._make = make
        self._process = OwnProcess(what)
        self._running: concurrent.futures.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Client | None = None
        self._stop: asyncio.Event | None = None
        self._opening: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Raises what opening the client raises."""
        if self._running is not None:
            raise errors.InvalidArgument(f"the {self._what} is open already")
        self._process = OwnProcess(self._what)
        opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        running: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._running = running
        # A program that ends without closing must not hang, and what it sent must leave.
        atexit.register(self._at_exit)
        threading.Thread(
            target=self._run, args=(opened, running), name=f"aerobee-{self._what}", daemon=True
        ).start()
        try:
            opened.result()
        except KeyboardInterrupt as interrupt:
            self._call_off(opened)
            self._end(running)
            raise interrupt.with_traceback(None) from None
        except errors.AerobeeError as error:
            self._end(running)
            raise shortened(error) from error.__cause__
        except BaseException:
            self._end(running)
            raise

    def close(self) -> None:
        """Close the client and end the thread. Does nothing if it is closed already, or in a child
        of the process that opened it. Raises what closing the client raises."""
        running = self._running
        if running is None or self._process.is_left:
            return
        self._end(running)
        running.result()

    @property
    def client(self) -> Client:
        """The open client; it belongs to the thread.

        Raises:
            ShuttingDown: it is not open.
            UsedAfterFork: this is a child of the process that opened it.
        """
        if self._running is None:
            raise errors.ShuttingDown(f"the {self._what} is not open: use it inside `with`")
        self._process.check()
        if self._client is None:
            self._running.result()  # Raises what ended it.
            raise errors.ShuttingDown(f"the {self._what} was closed")
        return self._client

    def call(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """The result of a coroutine of the client. An interrupt of this thread cancels it."""
        client, loop, running = self.client, self._loop, self._running
        assert loop is not None
        assert running is not None
        asked = asyncio.run_coroutine_threadsafe(ask(client), loop)
        try:
            return asked.result()
        except concurrent.futures.CancelledError:
            running.result()  # Raises what ended the client.
            raise errors.ShuttingDown(f"the {self._what} was closed") from None
        except KeyboardInterrupt as interrupt:
            asked.cancel()
            # Where exactly this thread was waiting tells its user nothing.
            raise interrupt.with_traceback(None) from None
        except errors.AerobeeError as error:
            # It says what happened and what to do; the way that it came is this library's own.
            raise shortened(error) from error.__cause__
        except BaseException:
            asked.cancel()
            raise

    def do(self, ask: Callable[[Client], T]) -> T:
        """The result of a plain function, called in the client's thread."""

        async def asked(client: Client) -> T:
            return ask(client)

        return self.call(asked)

    def _end(self, running: concurrent.futures.Future[None]) -> None:
        self._running = None
        atexit.unregister(self._at_exit)
        if self._loop is not None and self._stop is not None and not running.done():
            self._loop.call_soon_threadsafe(self._stop.set)
        concurrent.futures.wait([running])

    def _call_off(self, opened: concurrent.futures.Future[None]) -> None:
        """An interrupt does not wait for a cluster that does not answer."""
        opening, loop = self._opening, self._loop
        if opening is not None and loop is not None and not opened.done():
            loop.call_soon_threadsafe(opening.cancel)

    def _at_exit(self) -> None:
        self.close()

    def _run(
        self,
        opened: concurrent.futures.Future[None],
        running: concurrent.futures.Future[None],
    ) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._live(opened))
        except BaseException as error:
            if not opened.done():
                opened.set_exception(error)
                running.set_result(None)
            else:
                running.set_exception(error)
        else:
            running.set_result(None)

    async def _live(self, opened: concurrent.futures.Future[None]) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._opening = asyncio.current_task()
        try:
            async with self._make() as client:
                self._client = client
                self._opening = None
                opened.set_result(None)
                await self._stop.wait()
        finally:
            self._client = None


class BlockingClient(Generic[Client]):
    """A client for code without an event loop: its life, which is that of its thread."""

    def __init__(self, thread: LoopThread[Client]) -> None:
        self._thread = thread

    def start(self) -> None:
        """Open the client, in a thread of its own; it ends with `close`.

        Raises:
            InvalidArgument: it is open already.
            AerobeeError: as `start` of the asynchronous client.
        """
        self._thread.open()

    def close(self) -> None:
        """Finish what is under way, as `aclose` of the asynchronous client does, and end its
        thread. Does nothing if it is closed already, or in a child of the process that opened it.
        """
        self._thread.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
