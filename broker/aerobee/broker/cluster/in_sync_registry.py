"""A master's changes of its replica set's record, through any of the nameservers.

Owns: which nameserver answered last; it is asked first. A change may safely be requested again,
also from another nameserver: it is a compare-and-swap on the record's revision. A connection that
brought no answer is not reused: the nameserver's name may resolve to another address by now.
"""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.broker.cluster.records import view_of
from aerobee.broker.replication.master_term import Proposal
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import ALTER_IN_SYNC_SET
from aerobee.runtime.errors import (
    AerobeeError,
    DeadlineExceeded,
    InvalidArgument,
    StaleEpoch,
    Unreachable,
)
from aerobee.v1 import common_pb2, nameserver_pb2

ANSWER_TIMEOUT_MS = 1_000


class InSyncRegistry:
    """One broker's access to it."""

    def __init__(
        self,
        nameservers: Sequence[str],
        identity: common_pb2.BrokerIdentity,
        channels: Channels,
    ) -> None:
        """`channels` have connections of their own; their owner closes them."""
        self._nameservers = list(nameservers)
        self._identity = identity
        self._channels = channels

    async def alter(self, epoch: int, proposal: Proposal) -> ReplicaSetView:
        """The record after the change.

        Raises:
            StaleEpoch: the registry has another master or another epoch.
            InvalidArgument: not made: every nameserver that was asked refused it.
            AerobeeError: unknown whether it was made.
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
        failure: AerobeeError = Unreachable("there is no nameserver to ask")
        for number, address in enumerate(tuple(self._nameservers)):
            try:
                record = await self._channels.call(
                    address, ALTER_IN_SYNC_SET, request, timeout_ms=ANSWER_TIMEOUT_MS
                )
                return view_of(record)
            except StaleEpoch:
                raise
            except AerobeeError as error:
                # A refusal does not undo what an earlier nameserver, whose answer was lost, may
                # have done with the same request.
                if number == 0 or not isinstance(error, InvalidArgument):
                    failure = error
                self._nameservers.remove(address)
                self._nameservers.append(address)
                if isinstance(error, DeadlineExceeded | Unreachable):
                    self._channels.disconnect(address)
        raise failure
