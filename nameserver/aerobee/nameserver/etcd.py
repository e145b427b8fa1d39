"""etcd with an async interface: reads, transactions, leases, watches.

Owns: the package etcd3, which blocks and therefore lives here and on its own threads only, and the
connection, which moves on to the next endpoint when one fails, or turns out to belong to another
etcd cluster: this object accepts answers from one cluster only, for its whole life.

Invariant: every call is bounded in time; reads are retried, writes are not, because only the caller
can tell whether a repeated write is harmless. An etcd that is away shows as RegistryUnavailable and
nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import grpc
import tenacity

from aerobee.nameserver.backoff_wait import BackoffWait
from aerobee.nameserver.config import EtcdConfig
from aerobee.nameserver.etcd_calls import EtcdCalls
from aerobee.nameserver.etcd_connection import (
    Connection,
    OtherCluster,
    OutOfSpace,
    check_endpoints,
    check_same,
    cluster_of,
    error_of,
    has_no_connection,
    is_unanswered,
    open_connection,
)
from aerobee.nameserver.etcd_watch import EtcdWatch, WatchEnded, WatchUnconfirmed, prefix_end
from aerobee.nameserver.freshness import FRESH_FOR_S
from aerobee.nameserver.key_values import (
    Delete,
    KeyValue,
    Lease,
    LeaseNotFound,
    Put,
    Snapshot,
    TransactionResult,
    WatchBatch,
)
from aerobee.runtime.clock import Clock, SystemClock
from aerobee.runtime.errors import RegistryUnavailable
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff
from aerobee.runtime.waiting import Turns

log = logging.getLogger(__name__)

_SNAPSHOT_PAGE_KEYS = 1_000
WRITE_TRIAL_S = 2.0
KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"
_READ_BACKOFF = Backoff(base_ms=50, max_ms=500)

T = TypeVar("T")


class Etcd:
    """One connection to an etcd cluster; an async context manager."""

    fresh_for_s = FRESH_FOR_S

    def __init__(
        self, config: EtcdConfig, *, chance: random.Random, clock: Clock | None = None
    ) -> None:
        """`clock` times calls; by default the system's."""
        self._clock = SystemClock() if clock is None else clock
        self.calls = EtcdCalls(self._clock)
        self._config = config
        self._chance = chance
        self._threads = ThreadPoolExecutor(config.calls_in_flight_max, "etcd-call")
        self._turns = Turns(config.calls_in_flight_max)
        self._connecting = Turns()
        self._connection: Connection | None = None
        self._checked: Connection | None = None
        """The connection that is known to reach the right cluster."""
        self._cluster_id: int | None = None
        self._position = 0
        self._answered_s = self._clock.monotonic_s()
        """When a call was last answered."""

    def __repr__(self) -> str:
        return f"<Etcd at {self.endpoint}>"

    @property
    def endpoint(self) -> str:
        """The member in use, or tried next."""
        return self._config.endpoints[self._position]

    async def __aenter__(self) -> Etcd:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._in_thread(connection.client.close)
        self._threads.shutdown(wait=False)

    async def get(self, key: str) -> KeyValue | None:
        """One key, as a quorum read."""

        def read(connection: Connection) -> KeyValue | None:
            request = connection.etcdrpc.RangeRequest(key=key.encode())
            found = connection.client.kvstub.Range(request, self._timeout_s).kvs
            return _key_value(found[0]) if found else None

        return await self._read(read)

    async def get_with_prefixes(
        self, key: str, *prefixes: str
    ) -> tuple[KeyValue | None, tuple[KeyValue, ...]]:
        """One key and the few that start with one of `prefixes`, as of one revision."""

        def read(connection: Connection) -> tuple[KeyValue | None, tuple[KeyValue, ...]]:
            rpc, stub = connection.etcdrpc, connection.client.kvstub
            # Not a single read-only transaction: up to 3.5.4, etcd panics if the caller of one
            # gives up or is killed.
            one = stub.Range(rpc.RangeRequest(key=key.encode()), self._timeout_s)
            found: list[KeyValue] = []
            for start in (prefix.encode() for prefix in prefixes):
                request = rpc.RangeRequest(
                    key=start, range_end=prefix_end(start), revision=one.header.revision
                )
                found.extend(
                    _key_value(entry) for entry in stub.Range(request, self._timeout_s).kvs
                )
            return (_key_value(one.kvs[0]) if one.kvs else None), tuple(found)

        return await self._read(read)

    async def snapshot(self, prefix: str) -> Snapshot:
        """All keys that start with `prefix`, as of one revision."""

        def read(connection: Connection) -> Snapshot:
            start, end, revision = prefix.encode(), prefix_end(prefix.encode()), 0
            entries: list[KeyValue] = []
            while True:
                request = connection.etcdrpc.RangeRequest(
                    key=start, range_end=end, revision=revision, limit=_SNAPSHOT_PAGE_KEYS
                )
                page = connection.client.kvstub.Range(request, self._timeout_s)
                revision = revision or page.header.revision
                entries.extend(_key_value(found) for found in page.kvs)
                if not page.more:
                    return Snapshot(revision, tuple(entries))
                start = page.kvs[-1].key + b"\0"

        return await self._read(read)

    async def revision(self) -> int:
        """The store's revision, as a quorum read; asked once, and cheap."""

        def read(connection: Connection) -> int:
            request = connection.etcdrpc.RangeRequest(key=b"\0", count_only=True)
            answer = connection.client.kvstub.Range(request, self._timeout_s)
            return int(answer.header.revision)

        return await self._once(read)

    async def is_unchanged(self, prefix: str, *, count: int, revision: int) -> bool:
        """Whether `count` keys start with `prefix` and none of them changed after `revision`; asked
        once. etcd scans all of them for this."""

        def read(connection: Connection) -> bool:
            start = prefix.encode()
            request = connection.etcdrpc.RangeRequest(
                key=start,
                range_end=prefix_end(start),
                min_mod_revision=revision + 1,
                keys_only=True,
                limit=1,
            )
            answer = connection.client.kvstub.Range(request, self._timeout_s)
            # The count covers all keys in the range, not only those that changed.
            return answer.count == count and not answer.kvs

        return await self._once(read)

    async def transaction(
        self, expected: Mapping[str, int], changes: Sequence[Put | Delete]
    ) -> TransactionResult:
        """Make all `changes` if each expected key is at its revision (0: does not exist).

        Raises:
            LeaseNotFound: a Put names a lease that has ended; nothing was changed.
            RegistryUnavailable: also when it is unknown whether the changes were made.
        """

        def write(connection: Connection) -> TransactionResult:
            rpc = connection.etcdrpc
            request = rpc.TxnRequest(
                compare=[_compare(rpc, key, revision) for key, revision in expected.items()],
                success=[_request(rpc, change) for change in changes],
            )
            answer = connection.client.kvstub.Txn(request, self._timeout_s)
            return TransactionResult(answer.succeeded, answer.header.revision)

        return await self._once(write, is_write=True)

    async def grant_lease(self, duration_ms: int) -> Lease:
        """A new lease; etcd counts in whole seconds and may make it longer."""

        def grant(connection: Connection) -> Lease:
            request = connection.etcdrpc.LeaseGrantRequest(TTL=-(-duration_ms // 1_000))
            answer = connection.client.leasestub.LeaseGrant(request, self._timeout_s)
            return Lease(answer.ID, answer.TTL * 1_000)

        return await self._once(grant, is_write=True)

    async def keep_alive(self, lease_id: int) -> Lease:
        """Restart the lease's time.

        Raises:
            LeaseNotFound: it has ended.
        """

        def refresh(connection: Connection) -> Lease:
            request = connection.etcdrpc.LeaseKeepAliveRequest(ID=lease_id)
            # A stream in etcd's protocol. Called with one message, it has one answer, without the
            # threads that gRPC starts for each stream.
            ask = connection.client.channel.unary_unary(
                KEEP_ALIVE,
                request_serializer=connection.etcdrpc.LeaseKeepAliveRequest.SerializeToString,
                response_deserializer=connection.etcdrpc.LeaseKeepAliveResponse.FromString,
            )
            answer = ask(request, self._timeout_s)
            if answer.TTL <= 0:
                raise LeaseNotFound(f"lease {lease_id:x} has ended")
            return Lease(answer.ID, answer.TTL * 1_000)

        return await self._once(refresh)

    async def revoke_lease(self, lease_id: int) -> None:
        """End the lease and all its keys; not an error if it has already ended."""

        def revoke(connection: Connection) -> None:
            request = connection.etcdrpc.LeaseRevokeRequest(ID=lease_id)
            connection.client.leasestub.LeaseRevoke(request, self._timeout_s)

        try:
            await self._once(revoke)
        except LeaseNotFound:
            return

    async def keep_trying_writes(self) -> None:
        """While etcd refuses writes, check from time to time whether it accepts one again: in an
        idle cluster nobody else would. Runs until cancelled."""
        while True:
            await asyncio.sleep(WRITE_TRIAL_S)
            if self.calls.refuses_writes:
                with contextlib.suppress(RegistryUnavailable):
                    await self.revoke_lease((await self.grant_lease(1_000)).lease_id)

    @asynccontextmanager
    async def watch(
        self, prefix: str, *, from_revision: int
    ) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        """All changes below `prefix` from `from_revision` on; the first batch is empty.

        Raises (from the iterator):
            Compacted: etcd no longer has that revision.
            RegistryUnavailable: the connection was lost, or there is none; or etcd
                did not confirm the watch within the time limit of a call.
        """
        connection = await self._connect_checked()
        watch = EtcdWatch(connection.etcdrpc, connection.client.channel, prefix, from_revision)
        watch.start()
        try:
            yield self._batches(watch, connection)
        finally:
            await self._in_thread(watch.close)

    async def _batches(self, watch: EtcdWatch, connection: Connection) -> AsyncIterator[WatchBatch]:
        try:
            async for batch in watch.batches(self._timeout_s):
                yield batch
        except (grpc.RpcError, ValueError, WatchEnded, WatchUnconfirmed) as error:
            await self._give_up(connection, error)
            raise error_of(error, connection.endpoint) from error

    @property
    def _timeout_s(self) -> float:
        return self._config.call_timeout_ms / 1_000

    async def _read(self, call: Callable[[Connection], T]) -> T:
        """A call that may be repeated."""
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(RegistryUnavailable),
            stop=tenacity.stop_after_attempt(self._config.read_attempts_max),
            wait=BackoffWait(_READ_BACKOFF, self._chance),
            reraise=True,
        )
        return await retrying(self._once, call)

    async def _once(self, call: Callable[[Connection], T], *, is_write: bool = False) -> T:
        """Run `call` on a thread, in turn, with its errors translated."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._turns.acquire()
        except TimeoutError:
            raise RegistryUnavailable(
                f"etcd at {self.endpoint} is slow: {self._config.calls_in_flight_max} calls "
                "already wait for it"
            ) from None
        try:
            connection = await self._connect_checked()
            began_s = self._clock.monotonic_s()
            try:
                answer = await self._in_thread(call, connection)
            except (grpc.RpcError, ValueError) as error:
                failure = error_of(error, connection.endpoint)
                if isinstance(failure, RegistryUnavailable):
                    self.calls.failed(failure, is_write=is_write)
                    if not isinstance(failure, OutOfSpace):  # every member would say so
                        await self._give_up(connection, error, asked_s=began_s)
                raise failure from error
            self._answered_s = self._clock.monotonic_s()
            self.calls.answered(self._answered_s - began_s, is_write=is_write)
            return answer
        finally:
            self._turns.release()

    async def _connect(self) -> Connection:
        async with self._connecting:
            if self._connection is None:
                self._connection = await self._in_thread(
                    open_connection, self.endpoint, self._config
                )
            return self._connection

    async def _connect_checked(self) -> Connection:
        """A connection to the cluster that first answered.

        Raises:
            RegistryUnavailable: OtherCluster, or no answer.
        """
        connection = await self._connect()
        if connection is self._checked:
            return connection
        asked_s = self._clock.monotonic_s()
        try:
            found = await self._in_thread(cluster_of, connection, self._timeout_s)
        except (grpc.RpcError, ValueError) as error:
            failure = error_of(error, connection.endpoint)
            if isinstance(failure, RegistryUnavailable):
                self.calls.failed(failure)
            await self._give_up(connection, error, asked_s=asked_s)
            raise failure from error
        try:
            await self._check_cluster(connection, found)
        except OtherCluster as refused:
            log_event(log, "an etcd member is refused", level=logging.ERROR, reason=refused)
            self.calls.failed(refused)
            await self._give_up(connection, refused)
            raise
        self._checked = connection
        return connection

    async def _check_cluster(self, connection: Connection, found: int) -> None:
        """Raises OtherCluster."""
        if self._cluster_id is None:
            await self._in_thread(check_endpoints, connection, found, self._config)
        if self._cluster_id is None:
            self._cluster_id = found
            log_event(log, "etcd answers", endpoint=connection.endpoint, cluster_id=f"{found:x}")
        check_same(connection, found, self._cluster_id)

    async def _give_up(
        self, connection: Connection, error: Exception, *, asked_s: float | None = None
    ) -> None:
        """Use the next endpoint from now on. If there is only one, open a new connection when the
        current one is down: its name may now have another address, and a name that could not be
        resolved for a while would be retried less and less often. Also when the current one seems
        dead: a watch hangs, or no call was answered since `asked_s`, when the failed call was made.
        An etcd that is merely slow answers some."""
        is_silent = asked_s is not None and self._answered_s < asked_s and is_unanswered(error)
        if connection is self._connection and (
            len(self._config.endpoints) > 1
            or has_no_connection(error)
            or isinstance(error, WatchUnconfirmed)
            or is_silent
        ):
            self._connection = None
            self._position = (self._position + 1) % len(self._config.endpoints)
            # Calls still running on it fail immediately and are translated like others.
            await self._in_thread(connection.client.close)

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def _key_value(found: Any) -> KeyValue:
    return KeyValue(
        found.key.decode("utf-8", "replace"), found.value, found.mod_revision, found.lease
    )


def _compare(rpc: Any, key: str, revision: int) -> Any:
    """The key's last change was at `revision`; 0 for a key that does not exist."""
    return rpc.Compare(
        key=key.encode(),
        target=rpc.Compare.MOD,
        result=rpc.Compare.EQUAL,
        mod_revision=revision,
    )


def _request(rpc: Any, change: Put | Delete) -> Any:
    if isinstance(change, Delete):
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=change.key.encode()))
    put = rpc.PutRequest(key=change.key.encode(), value=change.value, lease=change.lease_id)
    return rpc.RequestOp(request_put=put)
