"""One watch of etcd on one thread, whose changes go to the event loop in order.

Owns: the thread and its gRPC call. The thread does one thing: it turns responses into WatchBatch
values and posts them. At most `BATCHES_WAITING_MAX` wait for the loop; then the thread waits, and
gRPC's flow control makes etcd wait too.

Invariant: whatever ends the thread reaches the reader of the changes, and `close` ends the thread
wherever it waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

from aerobee.nameserver.key_values import Compacted, KeyEvent, WatchBatch

BATCHES_WAITING_MAX = 64
_JOIN_TIMEOUT_S = 5.0
_DELETE = 1


class WatchEnded(Exception):
    """etcd ended the watch without an error from the call."""


class WatchUnconfirmed(Exception):
    """etcd did not confirm the watch in time."""


class EtcdWatch:
    """A watch of all keys below `prefix` from `from_revision` on; used once.

    The first batch is empty: it confirms the watch.
    """

    def __init__(
        self, etcdrpc: Any, channel: grpc.Channel, prefix: str, from_revision: int
    ) -> None:
        """`etcdrpc`: the stubs of the package etcd3, loaded."""
        self._stub = etcdrpc.WatchStub(channel)
        self._request = etcdrpc.WatchRequest(
            create_request=etcdrpc.WatchCreateRequest(
                key=prefix.encode(),
                range_end=prefix_end(prefix.encode()),
                start_revision=from_revision,
            )
        )
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[WatchBatch | Exception] = asyncio.Queue()
        self._room = threading.Semaphore(BATCHES_WAITING_MAX)
        self._closed = threading.Event()
        self._call: Any = None
        self._thread = threading.Thread(target=self._run, name="etcd-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the call and the thread; blocks briefly, so not for the event loop."""
        self._closed.set()
        self._room.release()
        if self._call is not None:
            self._call.cancel()
        self._thread.join(_JOIN_TIMEOUT_S)

    async def batches(self, confirm_s: float) -> AsyncIterator[WatchBatch]:
        """The changes, endlessly. The first batch must come within `confirm_s`; after that there is
        no time limit.

        Raises:
            Compacted: `from_revision` is no longer in etcd's history.
            grpc.RpcError: the call failed.
            WatchEnded: etcd ended it.
            WatchUnconfirmed: etcd accepted the call but sent nothing.
        """
        try:
            async with asyncio.timeout(confirm_s):
                first = await self._next()
        except TimeoutError:
            raise WatchUnconfirmed(f"it did not confirm the watch within {confirm_s:g} s") from None
        yield first
        while True:
            yield await self._next()

    async def _next(self) -> WatchBatch:
        item = await self._arrived.get()
        self._room.release()
        if isinstance(item, Exception):
            raise item
        return item

    def _run(self) -> None:
        try:
            # Makes a member that has lost its quorum end the watch instead of staying silent.
            self._call = self._stub.Watch(self._requests(), metadata=(("hasleader", "true"),))
            if self._closed.is_set():
                self._call.cancel()
            for response in self._call:
                if not self._post(_to_item(response)):
                    return
            self._post(WatchEnded("etcd ended the watch"))
        except Exception as error:
            # The call's error; ValueError: the channel was closed underneath it; or a bug, which
            # must not end here: the routes would silently stop changing.
            self._post(error)
        finally:
            self._closed.set()

    def _requests(self) -> Iterator[Any]:
        """The single request; then the stream is kept open, because ending it would end the
        watch."""
        yield self._request
        self._closed.wait()

    def _post(self, item: WatchBatch | Exception) -> bool:
        """Hand over to the loop; False if nobody is listening any more."""
        self._room.acquire()
        if self._closed.is_set():
            return False
        try:
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, item)
        except RuntimeError:  # the loop is closed
            return False
        return True


def _to_item(response: Any) -> WatchBatch | Exception:
    if response.compact_revision != 0:
        return Compacted(f"history starts at revision {response.compact_revision}")
    if response.canceled:
        return WatchEnded("etcd cancelled the watch")
    return WatchBatch(
        tuple(
            KeyEvent(
                event.kv.key.decode("utf-8", "replace"),
                None if event.type == _DELETE else event.kv.value,
                event.kv.mod_revision,
                event.kv.lease,
            )
            for event in response.events
        )
    )


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all that start with `prefix`, which must not end in 0xFF."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
