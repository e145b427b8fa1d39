"""The master's side of one slave's stream: log bytes, tables and heartbeats out, receipts in.

Owns: how far the log was sent to the slave and how far it has stored it. Invariant: no more than
the window is in flight, except for a single larger record; nothing is sent or counted under a term
other than the one under which the stream began, and nothing counts before the slave's first
receipt, which says that its log is the beginning of the master's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Never, Protocol

from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.joining import LogState, Sender, check_ack, check_sender
from aerobee.broker.replication.log_chunks import LogChunks
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName
from aerobee.broker.replication.messages import (
    EMPTIED_QUEUES_PATH,
    Ack,
    Agreement,
    Heartbeat,
    LogPart,
    MasterMessage,
    MasterStreamEnd,
    MasterTable,
    encode_emptied,
)
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.broker.replication.stream_tasks import Silence, Wake
from aerobee.broker.replication.table_source import TableSource
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, InvalidArgument, NotMaster
from aerobee.runtime.task_groups import run_together
from aerobee.store.engine.message_store import MessageStore

CONFIRMED_PAUSE_S = 0.005
"""If nothing else is to be sent, a new confirmed end waits this long for log bytes."""
TABLES_PAUSE_S = 1.0
"""A table is sent as a whole: one that changes often is sent at most once in this time."""

FirstMessage = Callable[[], Awaitable[Agreement]]
"""May have to read from disk."""


class MasterSide(Protocol):
    """What the streams to slaves need of the master's role."""

    @property
    def term(self) -> MasterTerm | None: ...

    @property
    def epoch(self) -> int: ...

    @property
    def replica_set(self) -> ReplicaSetView | None: ...

    def log_state(self) -> LogState: ...

    def is_registered(self, name: ReplicaName, instance: str) -> bool:
        """Whether this process is the registered one of its replica, as far as known."""
        ...

    def check_joining(self, name: ReplicaName, instance: str, epoch: int) -> None:
        """Check that this process of a replica may copy our log under `epoch`. Raises NotMaster,
        StaleEpoch, DuplicateBroker."""
        ...

    def replica_joined(self, name: ReplicaName, end: int) -> None: ...

    def replica_acknowledged(self, name: ReplicaName, end: int) -> None: ...

    def replica_left(self, name: ReplicaName) -> None: ...

    def heard_epoch(self, epoch: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedSlave:
    """A slave whose log equals the beginning of the master's, up to `position`."""

    name: ReplicaName
    instance: str
    """The process; its replica may have another one later."""
    sender: Sender
    """The sender identity in both sides' messages."""
    term: MasterTerm
    position: int
    window_bytes: int
    tables: dict[str, int] = field(default_factory=dict)
    """Checksums of its copies of the master's tables, by path."""


class SlaveStream:
    """`run` it once; `end` it from elsewhere."""

    def __init__(
        self,
        stream: MasterStreamEnd,
        slave: JoinedSlave,
        roles: MasterSide,
        store: MessageStore,
        chunks: LogChunks,
        tables: TableSource,
        limits: StreamLimits,
        clock: Clock,
    ) -> None:
        self._stream = stream
        self._slave = slave
        self._roles = roles
        self._store = store
        self._chunks = chunks
        self._tables = tables
        self._limits = limits
        self._clock = clock
        self._piece_bytes = min(limits.chunk_bytes, slave.window_bytes)
        self._wake = Wake()
        self._table_written = Wake()
        self._silence = Silence(clock, limits.silence_s, f"replica {slave.name.broker_id}")
        self._ended: asyncio.Future[Never] = asyncio.get_running_loop().create_future()
        self._tables_to_send: dict[str, bytes] = {}
        self._spoke_s = clock.monotonic_s()
        self._told_confirmed_end = 0
        self._large_record_from = -1
        self._large_record_end = 0
        self.sent_end = slave.position
        self.acknowledged_end = slave.position
        self.has_joined = False
        """The slave has accepted the agreement, and the roles know of it."""
        self.over = asyncio.Event()
        """Set by its runner once the roles know that the slave left."""

    def __repr__(self) -> str:
        return (
            f"SlaveStream({self._slave.name}, sent_end={self.sent_end}, "
            f"acknowledged_end={self.acknowledged_end})"
        )

    async def run(self, first: FirstMessage) -> None:
        """Send `first`, then everything, until the slave ends the stream. Raises AerobeeError."""
        if emptied := self._store.queues.emptied():
            self._tables_to_send[EMPTIED_QUEUES_PATH] = encode_emptied(emptied)
        await run_together(
            self._receive(),
            send=self._send(first),
            tables=self._watch_tables(),
            silence=self._silence.watch(),
            end=self._watch_end(),
        )

    @property
    def instance(self) -> str:
        """The process at the other end."""
        return self._slave.instance

    def end(self, error: AerobeeError) -> None:
        """Let `run` raise `error`."""
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # marks it retrieved, in case `run` is already over

    def end_term(self) -> None:
        """Let `run` raise NotMaster: the term that the slave joined is over."""
        self.end(self._not_master())

    def on_table_written(self) -> None:
        """A table may have changed."""
        self._table_written.set()

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    # ------------------------------------------------------------------------------ in

    async def _receive(self) -> None:
        slave = self._slave
        while (said := await self._stream.read()) is not None:
            sender, message = said
            own = slave.sender
            check_sender(Sender(own.cluster, own.broker_name, sender.epoch), sender)
            if sender.epoch > own.epoch:
                self._roles.heard_epoch(sender.epoch)
            check_sender(own, sender)
            if not isinstance(message, Ack):
                raise InvalidArgument(
                    "a stream has only one hello; open another stream to start over"
                )
            end = message.stored_end
            check_ack(end, self.acknowledged_end, self.sent_end)
            self._check_term()
            self._silence.heard()
            self.acknowledged_end = end
            if not self.has_joined:
                # Only now: before, it might have found that its log is a different one with the
                # same epochs.
                self.has_joined = True
                self._roles.replica_joined(slave.name, slave.position)
            self._roles.replica_acknowledged(slave.name, end)
            self._wake.set()

    # ------------------------------------------------------------------------------ out

    async def _send(self, first: FirstMessage) -> Never:
        write, sender, clock = self._stream.write, self._slave.sender, self._clock
        await write(sender, await first())
        while True:
            self._check_term()
            room = await self._room()
            wait_s = self._chunks.wait_s(in_sync=self._is_in_sync) if room > 0 else 0.0
            if self._tables_to_send:
                path = next(iter(self._tables_to_send))
                message: MasterMessage = MasterTable(path, self._tables_to_send.pop(path))
            elif room > 0 and wait_s == 0:
                message = await self._next_part(room)
            else:
                due_s = self._heartbeat_due_s() - clock.monotonic_s()
                if due_s > 0:
                    await self._wake.wait(min(due_s, wait_s) if wait_s > 0 else due_s)
                    continue
                confirmed_end = self._confirmed_end()
                message = Heartbeat(confirmed_end, self._store.appended_end)
            await write(sender, message)
            self._spoke_s = clock.monotonic_s()

    async def _next_part(self, room: int) -> LogPart:
        position = self.sent_end
        data = await self._chunks.read(position, room, in_sync=self._is_in_sync)
        self._check_term()  # reading may have taken a while
        # Before it is written: the slave's answer may arrive first.
        self.sent_end = position + len(data)
        return LogPart(position, data, self._confirmed_end(), self._store.appended_end)

    async def _room(self) -> int:
        """How much of the log may be sent now."""
        waiting = self._store.appended_end - self.sent_end
        if waiting <= 0:
            return 0
        begin = self.acknowledged_end
        room = begin + self._slave.window_bytes - self.sent_end
        if room >= min(waiting, self._piece_bytes):
            return min(waiting, room)
        # What is in flight will be acknowledged and make room for a whole chunk, unless it is all
        # part of one record: the slave cannot acknowledge before it has the rest.
        if self._large_record_from != begin:
            self._large_record_end = await self._chunks.record_end(begin)
            self._large_record_from = begin
        return max(0, self._large_record_end - self.sent_end)

    def _confirmed_end(self) -> int:
        """The confirmed end to report with the next frame."""
        self._told_confirmed_end = self._slave.term.confirmed_end
        return self._told_confirmed_end

    def _heartbeat_due_s(self) -> float:
        has_news = self._slave.term.confirmed_end > self._told_confirmed_end
        return self._spoke_s + (
            CONFIRMED_PAUSE_S if has_news else self._limits.heartbeat_interval_s
        )

    @property
    def _is_in_sync(self) -> bool:
        return self._slave.name in self._slave.term.in_sync

    # ------------------------------------------------------------------------------ beside

    async def _watch_tables(self) -> Never:
        """Send the slave each table that differs from its copy."""
        known = dict(self._slave.tables)
        while True:
            for path, table in (await self._tables.current()).items():
                if known.get(path) != table.checksum:
                    known[path] = table.checksum
                    self._tables_to_send[path] = table.content
                    self._wake.set()
            await asyncio.sleep(TABLES_PAUSE_S)
            await self._table_written.wait()

    async def _watch_end(self) -> Never:
        await self._ended
        raise AssertionError("it has no result")

    def _check_term(self) -> None:
        if self._roles.term is not self._slave.term:
            raise self._not_master()

    def _not_master(self) -> NotMaster:
        epoch = self._slave.sender.epoch
        return NotMaster(
            f"the master's term of epoch {epoch} is over: ask the nameserver for the present master"
        )
