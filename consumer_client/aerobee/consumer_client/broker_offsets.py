"""The remote offset store: each queue's broker keeps the group's offset (clustering)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.offsets import Offsets
from aerobee.cluster_view.methods import COMMIT_OFFSETS
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.committing import Commit
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2


class BrokerOffsetStore:
    """An entry under a lease that is no longer current is refused with LeaseExpired; other entries
    are not affected.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        group: str,
        client_id: str,
        timeout_ms: int,
        read_timeout_ms: int = 0,
    ) -> None:
        """`timeout_ms` for one commit. `read_timeout_ms` for a read, which waits for a master; 0:
        the same."""
        self._connection = connection
        self._group = group
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._read_timeout_ms = read_timeout_ms or timeout_ms

    async def read(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """As OffsetStore. Raises what `Offsets.committed` raises."""
        offsets = Offsets(self._connection, timeout_ms=self._read_timeout_ms)
        committed = await offsets.committed(self._group, queues)
        return {queue: offset for queue, offset in committed.items() if offset is not None}

    async def begin(
        self, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, errors.AerobeeError]:
        commits = [Commit(queue, offset, 0) for queue, offset in offsets.items()]
        return await self._commit(commits, begins=True)

    async def commit(self, commits: Sequence[Commit]) -> Mapping[MessageQueue, errors.AerobeeError]:
        return await self._commit(commits, begins=False)

    async def _commit(
        self, entries: Sequence[Commit], *, begins: bool
    ) -> Mapping[MessageQueue, errors.AerobeeError]:
        first = entries[0].queue
        request = broker_pb2.CommitOffsetsRequest(
            group=self._group,
            client_id=self._client_id,
            begins=begins,
            offsets=[
                broker_pb2.QueueOffset(
                    topic=queue.topic, queue_id=queue.queue_id, offset=offset, lease_epoch=epoch
                )
                for queue, offset, epoch in entries
            ],
        )
        routes = self._connection.routes
        try:
            route = await routes.route(first.topic, timeout_ms=self._timeout_ms)
            address = route.master_address(first.broker_name)
            async with routes.while_master(first.topic, route.masters[first.broker_name]):
                response = await self._connection.channels.call(
                    address, COMMIT_OFFSETS, request, timeout_ms=self._timeout_ms
                )
        except errors.AerobeeError as error:
            return {entry.queue: error for entry in entries}
        return {
            entry.queue: error_from_code(status.code, status.message)
            for entry, status in zip(entries, response.results, strict=True)
            if status.code != common_pb2.OK
        }
