"""The master's streams to its slaves: who may join, where they start, and who is connected.

Owns: the streams by broker id. Invariant: a replica has one stream, from its registered process.
The stream of a later process ends that of an earlier one; a second stream of the same process waits
until the first has ended. The roles are told that the first left before they are told that the
second joined. Both sides derive from both logs where the slave continues; bytes flow only if its
log is the beginning of the master's. The roles are told that it joined once it has compared the
logs' bytes and acknowledged something.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.duties import Duty
from aerobee.broker.replication.joining import (
    GoOn,
    Sender,
    check_sender,
    compared_bytes,
    where_to_start,
)
from aerobee.broker.replication.log_chunks import LogChunks
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName
from aerobee.broker.replication.messages import Agreement, Hello, MasterStreamEnd
from aerobee.broker.replication.slave_stream import JoinedSlave, MasterSide, SlaveStream
from aerobee.broker.replication.stream_tasks import within, write_within
from aerobee.broker.replication.table_source import TableSource
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, DuplicateBroker, InvalidArgument, NotMaster
from aerobee.runtime.log import log_event
from aerobee.runtime.waiting import Waiters
from aerobee.store.engine.message_store import MessageStore

log = logging.getLogger(__name__)

REGISTERED_WITHIN_S = 1.0
"""How long a stream waits for this master to learn that its process is registered."""


class ReplicationSender(Duty):
    """`serve` is called for each stream, from tasks of their own."""

    def __init__(
        self,
        cluster: str,
        broker_name: str,
        roles: MasterSide,
        store: MessageStore,
        pool: ReadPool,
        tables: TableSource,
        limits: StreamLimits,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._broker_name = broker_name
        self._roles = roles
        self._store = store
        self._pool = pool
        self._tables = tables
        self._limits = limits
        self._clock = clock
        self._streams: dict[int, SlaveStream] = {}
        self._news = Waiters()

    def __repr__(self) -> str:
        return f"ReplicationSender({list(self._streams.values())})"

    @property
    def connected(self) -> list[int]:
        """Broker ids of the slaves with a stream, ascending."""
        return sorted(self._streams)

    def on_appended(self) -> None:
        """The log has grown: send it. Appends of one turn of the loop are sent together."""
        for stream in self._streams.values():
            stream.wake()

    def on_confirmed(self) -> None:
        """More is confirmed: the slaves learn of it within milliseconds."""
        for stream in self._streams.values():
            stream.wake()

    def on_table_written(self, path: str) -> None:
        """A table's file was replaced: send it to the slaves if it is one of theirs."""
        self._tables.written(path)
        for stream in self._streams.values():
            stream.on_table_written()

    def on_replicas_changed(self) -> None:
        """The roles have learned of other processes, or other replicas are known."""
        self._news.wake()

    def begin(self, term: MasterTerm) -> None:
        """Streams belong to one term: those of an earlier one end."""
        self.end()

    def end(self) -> None:
        """End every stream; the slaves reconnect, here or elsewhere."""
        for stream in self._streams.values():
            stream.end_term()

    async def serve(self, stream: MasterStreamEnd) -> None:
        """One slave's stream, until the slave ends it.

        Raises:
            ForeignCluster, StaleEpoch, NotMaster, ReplicaDiverged: the slave cannot join, at least
            now.
            CorruptFrame, ReplicationGap, InvalidArgument: it breaks the protocol.
            DuplicateBroker: it is not from its replica's registered process, that process already
                has a stream, or a later process took over.
            Unreachable: it is silent.
        """
        limit_s = self._limits.silence_s
        sender, hello = await within(limit_s, "the slave", stream.read)
        # Its epoch is checked once it is known to belong to this replica set.
        check_sender(Sender(self._cluster, self._broker_name, sender.epoch), sender)
        if not isinstance(hello, Hello):
            raise InvalidArgument("the first message of a replication stream must be a hello")
        name = hello.name
        if not name.incarnation or hello.window_bytes == 0:
            raise InvalidArgument("a hello must name the replica's incarnation and a window")
        await self._until_registered(name, hello.instance)
        self._roles.check_joining(name, hello.instance, sender.epoch)
        while (earlier := self._streams.get(name.broker_id)) is not None:
            await self._until_over(earlier, name, hello.instance)
            self._roles.check_joining(name, hello.instance, sender.epoch)
        agreement, slave = self._agree(hello, sender)
        if slave is None:
            chunks = self._chunks(name.broker_id)
            agreement = await _with_checksum(agreement, chunks)
            # Reading may have taken a while.
            self._roles.check_joining(name, hello.instance, sender.epoch)
            await write_within(limit_s, "the slave", stream, sender, agreement)
            await self._until_ended(stream)
        else:
            await self._stream_to(slave, stream, agreement)

    async def _until_registered(self, name: ReplicaName, instance: str) -> None:
        """A replica that has just registered may know it before its master does."""
        roles = self._roles
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REGISTERED_WITHIN_S):
                while roles.term is not None and not roles.is_registered(name, instance):
                    await self._news.wait()

    async def _until_over(self, earlier: SlaveStream, name: ReplicaName, instance: str) -> None:
        """The replica already has a stream. Raises DuplicateBroker: that one is alive."""
        if earlier.instance != instance:
            # The registered process owns the folder: the earlier one has ended, though its
            # connection may not have.
            earlier.end(
                DuplicateBroker(f"another process is registered as replica {name.broker_id} now")
            )
            await earlier.over.wait()
            return
        try:
            # If its connection broke, silence soon ends the earlier one. The new one waits for an
            # answer no longer than that, and retries if it is refused.
            async with asyncio.timeout(self._limits.silence_s / 2):
                await earlier.over.wait()
        except TimeoutError:
            raise DuplicateBroker(
                f"replica {name.broker_id} already copies the log over another stream"
            ) from None

    def _agree(self, hello: Hello, sender: Sender) -> tuple[Agreement, JoinedSlave | None]:
        """What both logs share; None if the slave must change its log first."""
        roles = self._roles
        term, replica_set, name = roles.term, roles.replica_set, hello.name
        if term is None:
            raise NotMaster(
                "this replica is not the master of its broker group: ask the nameserver which one "
                "is"
            )
        own, theirs = roles.log_state(), hello.log
        newest = theirs.epochs.up_to(theirs.end).latest_epoch
        if newest > own.epochs.latest_epoch:
            roles.heard_epoch(newest)
        unclean_epochs = () if replica_set is None else replica_set.unclean_epochs
        start = where_to_start(theirs, own, unclean_epochs=unclean_epochs)
        log_event(
            log,
            "replica joins" if isinstance(start, GoOn) else "replica must change its log",
            replica=name.broker_id,
            incarnation=name.incarnation,
            log_end=theirs.end,
            start=start,
            own_end=own.end,
        )
        tail_bytes = compared_bytes(theirs, own, start)
        agreement = Agreement.of(own, start, unclean_epochs, tail_bytes=tail_bytes)
        if not isinstance(start, GoOn):
            return agreement, None
        return agreement, JoinedSlave(
            name=name,
            instance=hello.instance,
            sender=sender,
            term=term,
            position=start.position,
            window_bytes=hello.window_bytes,
            tables=dict(hello.tables),
        )

    async def _until_ended(self, stream: MasterStreamEnd) -> None:
        """Wait for the slave to end the stream soon; anything else it says is ignored."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.silence_s):
                while await stream.read() is not None:
                    pass

    def _chunks(self, broker_id: int) -> LogChunks:
        return LogChunks(
            self._store.log,
            self._pool,
            self._clock,
            reader=f"replica {broker_id}",
            chunk_bytes=self._limits.chunk_bytes,
            bytes_per_s=self._limits.catch_up_bytes_per_s,
        )

    async def _stream_to(
        self, slave: JoinedSlave, stream: MasterStreamEnd, agreement: Agreement
    ) -> None:
        broker_id = slave.name.broker_id
        chunks = self._chunks(broker_id)
        running = SlaveStream(
            stream, slave, self._roles, self._store, chunks, self._tables, self._limits, self._clock
        )
        self._streams[broker_id] = running
        why = "it ended the stream"
        try:
            await running.run(lambda: _with_checksum(agreement, chunks))
        except AerobeeError as error:
            why = str(error)
            raise
        finally:
            del self._streams[broker_id]
            if running.has_joined:
                self._roles.replica_left(slave.name)
            running.over.set()
            log_event(log, "replica left", replica=broker_id, reason=why)


async def _with_checksum(agreement: Agreement, chunks: LogChunks) -> Agreement:
    """Adds the checksum of the bytes that the slave must compare."""
    end = agreement.start
    checksum = await chunks.checksum(end - agreement.tail_bytes, end)
    return replace(agreement, tail_checksum=checksum)
