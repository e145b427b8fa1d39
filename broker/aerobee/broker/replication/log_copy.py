"""The slave's side of one stream: the master's log bytes in, acknowledgements out.

Owns: bytes received and not stored yet, bounded by the window. Invariant: bytes are stored in order
and without a gap, as they are in the master's log; what is acknowledged is stored, and flushed if
the settings require it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Never

from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import LogState, Sender, check_bytes, check_sender
from aerobee.broker.replication.messages import (
    EMPTIED_QUEUES_PATH,
    Ack,
    Heartbeat,
    LogPart,
    MasterTable,
    SlaveStreamEnd,
    decode_emptied,
)
from aerobee.broker.replication.stream_tasks import Silence, Wake
from aerobee.broker.replication.table_copies import TableCopies
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    Busy,
    InvalidArgument,
    NotWritable,
    ReplicationGap,
    Unreachable,
)
from aerobee.runtime.log import log_event
from aerobee.runtime.task_groups import run_together
from aerobee.store.engine.message_store import MessageStore

log = logging.getLogger(__name__)

STEP_BYTES = 512 * 1024
"""Bytes stored at a time, so that other work does not wait long for the loop."""
FULL_DISK_RETRY_S = 0.5
OVERRUN_BYTES_MAX = 32 * 1024 * 1024
"""Allowance above the window, for a single record larger than it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveSide:
    """What the rest of the broker does for a slave's stream."""

    log_state: Callable[[], LogState]
    adopt_history: Callable[[EpochHistory], Awaitable[None]]
    """Returns once the master's history is durably this log's own."""
    on_appended: Callable[[], None]
    """More is in the page cache: flush it according to the policy."""
    on_confirmed: Callable[[int], None]
    """The master's confirmed end, which may be after this log's end."""
    on_trouble: Callable[[str], None] = lambda _: None
    """Why nothing is being stored; empty once it is again."""


class LogCopy:
    """`run` it once."""

    def __init__(
        self,
        stream: SlaveStreamEnd,
        sender: Sender,
        peer: str,
        store: MessageStore,
        side: SlaveSide,
        tables: TableCopies,
        limits: StreamLimits,
        clock: Clock,
    ) -> None:
        self._stream = stream
        self._sender = sender
        self._peer = peer
        self._store = store
        self._side = side
        self._tables = tables
        self._limits = limits
        self._clock = clock
        self._silence = Silence(clock, limits.silence_s, peer)
        self._received_end = store.replicated.begin()
        self._waiting: deque[LogPart] = deque()
        self._arrived = Wake()
        self._stored = Wake()
        self._table_arrived = Wake()
        self._tables_waiting: dict[str, bytes] = {}
        self._is_storing = False
        self._unheard: LogPart | None = None
        """It is stored; its news of the master's log is not passed on yet."""
        self._told: Ack | None = None
        """The last acknowledgement."""
        self._told_s = 0.0
        self.confirmed_end = 0
        self.master_end = 0

    async def run(self) -> Never:
        """Until the stream ends. Raises AerobeeError."""
        await run_together(
            self._receive(),
            store=self._store_all(),
            acknowledge=self._acknowledge(),
            tables=self._take_tables(),
            silence=self._silence.watch(),
        )
        raise Unreachable(f"{self._peer} ended the stream")

    def on_flushed(self) -> None:
        """More of the log is on disk."""
        self._stored.set()

    def hear(self, confirmed_end: int, master_end: int) -> None:
        """What the master reports about its log. Raises ReplicationGap."""
        if confirmed_end > master_end:
            raise ReplicationGap(
                f"{self._peer} says that its log ends at {master_end} and is confirmed up to "
                f"{confirmed_end}"
            )
        self.confirmed_end = max(self.confirmed_end, confirmed_end)
        self.master_end = max(self.master_end, master_end)
        self._side.on_confirmed(self.confirmed_end)

    # ------------------------------------------------------------------------------ in

    async def _receive(self) -> None:
        while (said := await self._stream.read()) is not None:
            sender, message = said
            check_sender(self._sender, sender)
            self._silence.heard()
            if isinstance(message, LogPart):
                self._take_bytes(message)
            elif isinstance(message, Heartbeat):
                self.hear(*message)
                self._stored.set()  # answer soon: each side then wakes once for both directions
            elif isinstance(message, MasterTable):
                self._tables_waiting[message.path] = message.content
                self._table_arrived.set()
            else:
                raise InvalidArgument("the master sent a second agreement on one stream")

    def _take_bytes(self, part: LogPart) -> None:
        check_bytes(self._received_end, part.position)
        self._received_end += len(part.data)
        waiting_bytes = self._received_end - self._store.replicated.received_end
        if waiting_bytes > self._limits.window_bytes + OVERRUN_BYTES_MAX:
            raise InvalidArgument(
                f"{self._peer} has sent {waiting_bytes} bytes that are not acknowledged, the "
                f"window is {self._limits.window_bytes}"
            )
        if self._waiting or self._is_storing or not self._store_at_once(part):
            self._waiting.append(part)
        self._arrived.set()

    # ------------------------------------------------------------------------------ storing

    def _store_at_once(self, part: LogPart) -> bool:
        """The usual part: it is stored and acknowledged in the turn in which it came. What it says
        of the master's log is heard in the next one, when the acknowledgement has left. False:
        nothing has happened."""
        replicated, size = self._store.replicated, len(part.data)
        # One in a turn, so that other work does not wait for all that has come.
        if self._unheard is not None or size > STEP_BYTES or not replicated.has_room(size):
            return False
        try:
            replicated.append(part.position, part.data)
        except Busy:
            return False
        except NotWritable:
            if replicated.received_end != part.position:
                raise
            return False
        self._appended()
        self._unheard = part
        return True

    def _appended(self) -> None:
        self._side.on_appended()
        self._tell_warnings()
        if not self._acknowledge_at_once():
            self._stored.set()

    async def _store_all(self) -> Never:
        while True:
            if (part := self._unheard) is not None:
                self._unheard = None
                self.hear(part.confirmed_end, part.log_end)
            while self._waiting:
                part, self._is_storing = self._waiting.popleft(), True
                await self._store_part(part)
                self._is_storing = False
            await self._arrived.wait()

    async def _store_part(self, part: LogPart) -> None:
        data = part.data
        for at in range(0, len(data), STEP_BYTES):
            piece = data if len(data) <= STEP_BYTES else data[at : at + STEP_BYTES]
            await self._append(part.position + at, piece)
            self._appended()
            self.hear(part.confirmed_end, part.log_end)
            if self._waiting or at + len(piece) < len(data):
                await asyncio.sleep(0)

    def _tell_warnings(self) -> None:
        """Such log lines are throttled when there are many; all are counted."""
        for warning in self._store.replicated.take_warnings():
            log_event(
                log,
                "a copied record does not continue its queue",
                level=logging.WARNING,
                master=self._peer,
                warning=warning,
            )

    async def _append(self, position: int, data: bytes) -> None:
        """Wait for the disk if necessary, and for room on it.

        Raises NotWritable if the disk became full halfway: the stream must restart.
        """
        replicated = self._store.replicated
        is_waiting = False
        while True:
            try:
                replicated.append(position, data)
                break
            except Busy as error:
                await asyncio.sleep(error.retry_after_ms / 1_000)
            except NotWritable as error:
                if replicated.received_end != position:
                    raise
                is_waiting = True
                self._side.on_trouble(str(error))
                await asyncio.sleep(FULL_DISK_RETRY_S)
        if is_waiting:
            self._side.on_trouble("")

    def _acknowledge_at_once(self) -> bool:
        """What is in the page cache, if that is enough and nothing has to be waited for."""
        if self._limits.flush_is_sync or self._told is None:
            return False
        ack = Ack(self._store.appended_end, self._store.flushed_end)
        if not self._stream.acknowledge_at_once(ack):
            return False
        self._told, self._told_s = ack, self._clock.monotonic_s()
        return True

    async def _acknowledge(self) -> Never:
        store, interval_s = self._store, self._limits.heartbeat_interval_s
        while True:
            flushed_end = store.flushed_end
            stored_end = flushed_end if self._limits.flush_is_sync else store.appended_end
            now_s, told = self._clock.monotonic_s(), self._told
            # Heartbeats that only carry the confirmed end come soon after an acknowledgement.
            if (
                told is None
                or told.stored_end != stored_end
                or now_s - self._told_s >= interval_s / 2
            ):
                self._told, self._told_s = Ack(stored_end, flushed_end), now_s
                await self._stream.write(self._sender, self._told)
            else:
                await self._stored.wait(self._told_s + 1.5 * interval_s - now_s)

    # ------------------------------------------------------------------------------ tables

    async def _take_tables(self) -> Never:
        while True:
            while self._tables_waiting:
                path = next(iter(self._tables_waiting))
                content = self._tables_waiting.pop(path)
                if path == EMPTIED_QUEUES_PATH:
                    self._begin_queues(content)
                else:
                    await self._tables.take(path, content)
            await self._table_arrived.wait()

    def _begin_queues(self, content: bytes) -> None:
        try:
            queues = decode_emptied(content)
        except ValueError as error:
            log_event(log, "the master's list of emptied queues is damaged", reason=error)
            return
        self._store.replicated.begin_queues(queues)
