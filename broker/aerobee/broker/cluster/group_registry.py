"""A master's changes of its group's record, through any of the nameservers.

Owns: which nameserver answered last; it is asked first. A change may be asked for again, at another
one too: it is a compare-and-swap on the record's revision. A connection over which no answer came
is not used again: the nameserver may have another address by now, behind the same name too.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from aerobee.broker.replication.master_term import Proposal
from aerobee.runtime.call_context import current_ids
from aerobee.runtime.errors import (
    DeadlineExceeded,
    InvalidArgument,
    MqError,
    StaleEpoch,
    Unreachable,
)
from aerobee.runtime.rpc import build_channel, error_from_rpc
from aerobee.v1 import common_pb2, nameserver_pb2, nameserver_pb2_grpc

ANSWER_TIMEOUT_S = 1.0


class GroupRegistry:
    """One broker's side."""

    def __init__(self, nameservers: Sequence[str], identity: common_pb2.BrokerIdentity) -> None:
        self._nameservers = list(nameservers)
        self._identity = identity
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def alter(self, epoch: int, proposal: Proposal) -> nameserver_pb2.GroupRecord:
        """The record after the change.

        Raises:
            StaleEpoch: the registry has another master or another epoch.
            InvalidArgument: it was not made: every nameserver that was asked refused it.
            MqError: it is unknown whether it was made.
        """
        identity = self._identity
        request = nameserver_pb2.AlterInSyncSetRequest(
            cluster=identity.cluster,
            broker_name=identity.broker_name,
            master_id=identity.broker_id,
            master_instance=identity.instance,
            epoch=epoch,
            expected_revision=proposal.expected_revision,
            in_sync=[
                nameserver_pb2.ReplicaName(broker_id=name.broker_id, incarnation=name.incarnation)
                for name in sorted(proposal.in_sync)
            ],
        )
        failure: MqError = Unreachable("there is no nameserver to ask")
        for number, address in enumerate(tuple(self._nameservers)):
            try:
                return await self._ask(address, request)
            except StaleEpoch:
                raise
            except MqError as error:
                # A refusal does not undo what an earlier nameserver, whose answer did not come,
                # may have made of the same request.
                if number == 0 or not isinstance(error, InvalidArgument):
                    failure = error
                self._nameservers.remove(address)
                self._nameservers.append(address)
                if isinstance(error, DeadlineExceeded | Unreachable):
                    await self._disconnect(address)
        raise failure

    async def _ask(
        self, address: str, request: nameserver_pb2.AlterInSyncSetRequest
    ) -> nameserver_pb2.GroupRecord:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = build_channel(address, own_connection=True)
        stub = nameserver_pb2_grpc.NameserverServiceStub(channel)
        try:
            record: nameserver_pb2.GroupRecord = await stub.AlterInSyncSet(
                request, timeout=ANSWER_TIMEOUT_S, metadata=current_ids().metadata()
            )
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, address) from None
        return record

    async def close(self) -> None:
        """End the connections."""
        for address in tuple(self._channels):
            await self._disconnect(address)

    async def _disconnect(self, address: str) -> None:
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()
