"""A slave's part: it joins its master and copies its log while the stream lasts.

Owns: what is known of the master. Invariant: nothing is stored or cut before both sides agree where
this log departs from the master's and have compared the bytes before that point; nothing is stored
before the master's epoch history is durable here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Never

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.joining import (
    BeginAnew,
    Cut,
    GoOn,
    LogState,
    Sender,
    Start,
    check_sender,
    compared_bytes,
    where_to_start,
)
from aerobee.broker.replication.log_chunks import LogChunks
from aerobee.broker.replication.log_copy import LogCopy, SlaveSide
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.messages import (
    Agreement,
    Hello,
    MasterMessage,
    Said,
    SlaveStreamEnd,
    position_of,
)
from aerobee.broker.replication.stream_tasks import Wake, within, write_within
from aerobee.broker.replication.table_copies import TableCopies
from aerobee.runtime.call_context import RequestNames, request_scope
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    AerobeeError,
    InvalidArgument,
    ReplicaDiverged,
    ReplicationGap,
    StaleEpoch,
)
from aerobee.runtime.log import log_event
from aerobee.store.engine.message_store import MessageStore

log = logging.getLogger(__name__)

FLUSH_POLL_S = 0.1

Connect = Callable[[str], AbstractAsyncContextManager[SlaveStreamEnd]]
"""A stream to a master's address; entering it does not wait for the connection."""


class Follower:
    """Exists as long as the store is open; follows one master at a time."""

    def __init__(
        self,
        cluster: str,
        broker_name: str,
        own: ReplicaName,
        instance: str,
        connect: Connect,
        store: MessageStore,
        pool: ReadPool,
        side: SlaveSide,
        tables: TableCopies,
        limits: StreamLimits,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._broker_name = broker_name
        self._own = own
        self._instance = instance
        self._connect = connect
        self._store = store
        self._pool = pool
        self._side = replace(side, on_trouble=self._on_trouble)
        self._tables = tables
        self._limits = limits
        self._clock = clock
        self._names = RequestNames(f"{broker_name}-{own.broker_id}-copy")
        self._copy: LogCopy | None = None
        self._flushed = Wake()
        self.trouble = ""
        """Why the master's log is not copied; empty while it is."""
        self.joined_end: int | None = None
        """Where the master's log ended when copying last began; None: it never began."""

    def __repr__(self) -> str:
        return f"Follower(connected={self.is_connected}, trouble={self.trouble!r})"

    @property
    def is_connected(self) -> bool:
        """Whether the master's log is being copied."""
        return self._copy is not None

    @property
    def master_end(self) -> int:
        """Where the master's log ended when last heard; 0 without a stream."""
        return 0 if self._copy is None else self._copy.master_end

    @property
    def confirmed_end(self) -> int:
        """The confirmed end that the master reported; 0 without a stream."""
        return 0 if self._copy is None else self._copy.confirmed_end

    def on_flushed(self, flushed_end: int) -> None:
        """More of the log is on disk: under SYNC_FLUSH it is acknowledged now."""
        self._flushed.set()
        if self._copy is not None:
            self._copy.on_flushed()

    async def follow(self, master_address: str, epoch: int) -> Cut | BeginAnew:
        """Copy the log of the master of `epoch`; returns if this log must be changed first.

        Raises:
            ReplicaDiverged, ForeignCluster: an operator must act.
            StoreFailed: this broker's disk failed.
            AerobeeError: the stream ended or could not be opened; it may be retried.
        """
        sender = Sender(self._cluster, self._broker_name, epoch)
        request_id = self._names.next()
        try:
            with request_scope(request_id):
                return await self._follow(master_address, sender)
        except AerobeeError as error:
            error.request_id = request_id
            self.trouble = str(error)
            raise
        finally:
            self._copy = None

    async def _follow(self, master_address: str, sender: Sender) -> Cut | BeginAnew:
        if self._limits.flush_is_sync:
            await self._flush_all()
        peer = f"the master at {master_address}"
        async with self._connect(master_address) as stream:
            own = self._side.log_state()
            hello = Hello(
                own,
                self._own,
                self._instance,
                window_bytes=self._limits.window_bytes,
                tables=self._tables.taken,
            )
            await write_within(self._limits.connect_s, peer, stream, sender, hello)
            answer = await within(self._limits.silence_s, peer, stream.read)
            agreement = _agreement(sender, answer)
            masters, start = _agree(own, sender, agreement)
            await self._compare(agreement, compared_bytes(own, masters, start))
            if not isinstance(start, GoOn):
                log_event(log, "the log must be changed", master=master_address, change=start)
                return start
            if masters.epochs != own.epochs:
                await self._side.adopt_history(masters.epochs)
            log_event(
                log,
                "copying the master's log",
                master=master_address,
                epoch=sender.epoch,
                position=start.position,
                master_end=masters.end,
            )
            await self._copy_log(stream, sender, peer, masters)

    async def _compare(self, agreement: Agreement, size: int) -> None:
        """Read what both logs have before the start. The folder has not been changed yet.

        Raises:
            ReplicaDiverged: this log has other bytes there.
            InvalidArgument: the master did not say what it has there.
        """
        if agreement.tail_bytes != size:
            raise InvalidArgument(
                f"the master compares {agreement.tail_bytes} bytes before {agreement.start}, "
                f"this slave {size}: run the same version on all replicas of the broker group"
            )
        chunks = LogChunks(
            self._store.log,
            self._pool,
            self._clock,
            reader="comparison with the master",
            chunk_bytes=self._limits.chunk_bytes,
            bytes_per_s=0,
        )
        end = agreement.start
        if await chunks.checksum(end - size, end) != agreement.tail_checksum:
            raise ReplicaDiverged(
                f"the slave's log has other bytes before {end} than the master's under the same "
                "epochs: the folder is another cluster's, was used elsewhere, or is damaged; "
                "move it away and start the slave with an empty one"
            )

    async def _copy_log(
        self, stream: SlaveStreamEnd, sender: Sender, peer: str, masters: LogState
    ) -> Never:
        self.trouble = ""
        self.joined_end = masters.end
        self._copy = LogCopy(
            stream,
            sender,
            peer,
            self._store,
            self._side,
            self._tables,
            self._limits,
            self._clock,
        )
        self._copy.hear(masters.confirmed_end, masters.end)
        await self._copy.run()

    async def _flush_all(self) -> None:
        """The hello counts everything up to the log's end as stored, so flush it."""
        while self._store.flushed_end < self._store.appended_end:
            self._side.on_appended()
            await self._flushed.wait(FLUSH_POLL_S)

    def _on_trouble(self, trouble: str) -> None:
        if bool(trouble) != bool(self.trouble):
            log_event(log, "copying", level=logging.WARNING, stopped=bool(trouble), reason=trouble)
        self.trouble = trouble


def _agreement(sender: Sender, answer: Said[MasterMessage]) -> Agreement:
    """Raises AerobeeError if the answer is not from this master."""
    check_sender(sender, answer.sender)
    if not isinstance(answer.message, Agreement):
        raise InvalidArgument("the master did not answer the hello with an agreement")
    return answer.message


def _agree(own: LogState, sender: Sender, agreement: Agreement) -> tuple[LogState, Start]:
    """The master's log, and what this slave has to do.

    Raises ReplicaDiverged, and every other AerobeeError if the agreement cannot be this master's.
    """
    masters = agreement.masters_log(own.segment_bytes)
    if masters.epochs.latest_epoch != sender.epoch:
        raise StaleEpoch(
            f"the master acts under epoch {sender.epoch}, its log's newest is "
            f"{masters.epochs.latest_epoch}"
        )
    start = where_to_start(own, masters, unclean_epochs=agreement.unclean_epochs)
    if position_of(start) != agreement.start:
        raise ReplicationGap(
            f"the master would continue at {agreement.start}, this slave at "
            f"{position_of(start)}: their logs changed meanwhile, or one of them is wrong"
        )
    return masters, start
